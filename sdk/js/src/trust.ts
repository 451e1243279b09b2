/** The witnesses of a hub's log that an app trusts (section 10 of the wire format). */

import { ConfigError } from "./errors.js";

/** A public key with its name. */
export interface Key {
  readonly name: string;
  readonly bytes: Uint8Array<ArrayBuffer>;
}

/** Witnesses that an app trusts, and how many of them have to cosign a head. */
export interface Trust {
  readonly keys: readonly Key[];
  readonly quorum: number;
}

/** @throws ConfigError A key is none or there twice, or more are needed than there are. */
export function trustOf(witnesses: readonly string[] = [], quorum?: number): Trust {
  const seen = new Set<string>();
  const keys = witnesses.map((text) => {
    const [, name, coded] = /^([^\s+]{1,200})\+[0-9a-f]{8}\+(BA?[A-Za-z0-9+/]{42,43}=?)$/.exec(text) ?? [];
    const bytes = Uint8Array.from(name ? atob(coded) : "", (character) => character.charCodeAt(0));
    if (bytes.length !== 33 || bytes[0] !== 4 || seen.has(coded)) {
      throw new ConfigError("witnesses must be different public keys of witnesses, NAME+HEX+BASE64.");
    }
    seen.add(coded);
    return { name, bytes: bytes.slice(1) };
  });
  quorum ??= keys.length && Math.floor(keys.length / 2) + 1;
  if (!Number.isInteger(quorum) || quorum < Math.min(1, keys.length) || quorum > keys.length) {
    throw new ConfigError("quorum must be in 1 .. the number of witnesses.");
  }
  return { keys, quorum };
}
