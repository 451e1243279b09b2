/**
 * Statements with WebAuthn, which a hub may want where a device enrols (12.11 to 12.14 of the wire format).
 *
 * An app whose pages make such statements takes `webAuthn` from `attest.js`, which has this file alone.
 */

import type { Attest } from "./connection.js";

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
