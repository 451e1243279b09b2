/** The witnesses of a hub's log that an app trusts (section 10 of the wire format). */

import { ConfigError } from "./errors.js";

/** Witnesses that an app trusts, by their public keys, and how many of them have to cosign a head. */
export interface Trust {
  readonly keys: readonly string[];
  readonly quorum: number;
}

/** A witness's key: a name, eight digits, and 33 bytes in base64, the first of which is 4. */
const KEY = /^[^\s+]{1,200}\+[0-9a-f]{8}\+B[A-P][A-Za-z0-9+/]{42}$/;

/** @throws ConfigError A key is none or there twice, or more are needed than there are. */
export function trustOf(keys: readonly string[] = [], quorum?: number): Trust {
  const { length } = keys;
  if (new Set(keys.map((key) => key.slice(-44))).size < length || !keys.every((key) => KEY.test(key))) {
    throw new ConfigError("witnesses must be different public keys of witnesses, NAME+HEX+BASE64.");
  }
  quorum ??= length && Math.floor(length / 2) + 1;
  if (!Number.isInteger(quorum) || quorum < Math.min(1, length) || quorum > length) {
    throw new ConfigError("quorum must be in 1 .. the number of witnesses.");
  }
  return { keys, quorum };
}
