/**
 * Statements of a device's platform, which a hub may want where somebody enrols (12.11 to 12.14 of the wire format).
 *
 * An app whose pages make statements with WebAuthn takes `webAuthn` from `attest.js`, which has this file alone.
 */

import type { Answer, HubClient } from "./connection.js";
import { type Bytes, fromBase64url, text } from "./oblivious/bytes.js";

/**
 * Makes statements.
 *
 * @param challenge What the statement has to be about.
 * @param kinds Kinds that the hub accepts.
 * @returns The kind of the statement and the statement, which JSON can write.
 */
export type Attest = (challenge: Bytes, kinds: readonly string[]) => Promise<readonly [kind: string, statement: unknown]>;

/** Longest answer to an enrolment, in bytes. */
const LONGEST = 65_536;

const read = ({ body }: Answer) => JSON.parse(new TextDecoder().decode(body));

/** Enrol with a statement about a challenge of the hub; the answer, or one that says what went wrong before. */
export async function attested(hub: HubClient, enrolment: string, attest: Attest): Promise<Answer> {
  const asked = await hub.ask("POST", "/v1/challenge", enrolment, LONGEST);
  if (asked.status !== 201) return { ...asked, reason: `challenge, ${asked.reason}` };
  let body: Bytes;
  try {
    const { challenge, kinds } = read(asked);
    const [kind, statement] = await attest(fromBase64url(challenge), kinds.map(String));
    body = text(JSON.stringify({ kind, challenge, statement }));
  } catch (error) {
    // Of the app's function, or of the platform: without its own words.
    return { ...asked, status: 0, reason: `no statement, ${error instanceof Error ? error.name : "error"}` };
  }
  const answer = await hub.ask("POST", "/v1/enrol", enrolment, LONGEST, {}, body);
  if (answer.reason !== "not-attested") return answer;
  return { ...answer, reason: `not-attested, ${String(read(answer).why).slice(0, 40)}` };
}

/**
 * Statements with WebAuthn: the browser asks its user, and an authenticator makes a key and says of which make it is.
 *
 * @param name Of the app, which the browser shows.
 */
export function webAuthn(name: string): Attest {
  return async (challenge, kinds) => {
    if (!kinds.includes("webauthn")) throw new TypeError("the hub accepts no statement of this kind");
    const made = await navigator.credentials.create({
      publicKey: {
        challenge,
        rp: { name },
        user: { id: crypto.getRandomValues(new Uint8Array(16)), name, displayName: name },
        pubKeyCredParams: [-7, -8, -257].map((alg) => ({ type: "public-key", alg })),
        attestation: "direct",
      },
    });
    return ["webauthn", (made as PublicKeyCredential).toJSON()];
  };
}
