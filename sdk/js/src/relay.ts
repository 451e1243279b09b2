/**
 * Requests through an oblivious relay: the hub sees no address, the relay no content (11.9 to 11.11 of the wire format).
 */

import { bounded } from "./bounded.js";
import type { Refusal } from "./connection.js";
import { decodeResponse, encodeRequest } from "./oblivious/binary_http.js";
import { type Bytes, equal, text, unhex } from "./oblivious/bytes.js";
import { encapsulate, gatewayKeyIn } from "./oblivious/encapsulation.js";
import type { Terms } from "./terms.js";

/** Longest time that a relay may keep a request, in seconds. */
const LONGEST_BATCH = 60;
/** Bytes of an enrolment with a statement of the platform before it is encrypted. */
const STATEMENT = 16_384;
/** Bytes of every other request, and what an answer has beside its body at most, padding included. */
const REQUEST = 1024;
const AROUND = 32_768;

const OTHER = "the relay passes requests on to another gateway than that of the hub's terms";

/** What a relay says of itself: the gateway's key, and the fewest reports that it passes on together. */
export interface Told {
  readonly key: Bytes;
  readonly batch: number;
}

/** A client whose requests go through a relay. */
export interface Relayed {
  /** URL of the relay. */
  readonly relay: string | undefined;
  /** Longest time of a request, in seconds. */
  readonly timeout: number;
  /** What the relay says of itself, and the gateway's key in the hub's terms. */
  told?: Told | undefined;
  gateway?: Bytes;
}

async function told(hub: Relayed): Promise<Told> {
  if (hub.told) return hub.told;
  const response = await fetch(`${hub.relay}/`, { ...QUIET, signal: AbortSignal.timeout(hub.timeout * 1000) });
  const { keys, batch } = JSON.parse(new TextDecoder().decode(await bounded(response, REQUEST)));
  const key = gatewayKeyIn(unhex(keys));
  if (!key || !Number.isSafeInteger(batch)) throw new TypeError("not a relay");
  return (hub.told = { key, batch });
}

const QUIET = { redirect: "error", credentials: "omit", cache: "no-store", referrerPolicy: "no-referrer" } as const;

/**
 * Why a relay is not used under these terms; empty if it is, with the gateway's newest key.
 *
 * @param keys The gateway's key, and the one before it.
 * @param log Why nothing proves what the log says of its keys; it is asked through the key that the relay names.
 */
export async function objection(
  hub: Relayed,
  terms: Terms,
  keys: () => Promise<Bytes[]>,
  log: () => Promise<string | Refusal>,
): Promise<string | Refusal> {
  if (!terms.batch) return "the hub's terms know of no relay; leave relay out, or ask the hub's operator";
  const { key, batch } = await told(hub);
  const known = async () => {
    const all = await keys();
    [hub.gateway] = all;
    return all.some((one) => equal(one, key));
  };
  let why: string | Refusal = "";
  if (!(await known())) {
    try {
      hub.gateway = key; // for the log alone, which says whether it is the new one
      why = terms.log ? await log() : OTHER;
    } finally {
      if (!(await known())) why ||= OTHER;
    }
  }
  if (batch < terms.batch) why ||= `the relay passes on ${batch} reports together, the hub's terms promise ${terms.batch}`;
  if (why) hub.told = undefined; // its operator may set it right: it is asked again
  return why;
}

/** The hub's answer to a request; 503 where the relay says something of its own. An error: there is no answer. */
export async function through(
  hub: Relayed,
  path: string,
  { method, headers, body }: { method: string; headers: Record<string, string>; body: BodyInit | null },
  limit: number,
): Promise<Response> {
  const fields = Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value] as const);
  const stated = path === "/v1/enrol" && body;
  const inner = encodeRequest(method, path, fields, (body as Bytes | null) ?? text(""), stated ? STATEMENT : REQUEST);
  const sent = await encapsulate(hub.gateway ?? (await told(hub)).key, inner);
  // Reports wait for others, requests of other kinds a moment at most.
  const lane = path.startsWith("/v1/report/") ? "/report" : stated ? "/statement" : "/others";
  const response = await fetch(hub.relay + lane, {
    ...QUIET,
    method: "POST",
    headers: { "Content-Type": "message/ohttp-req" },
    body: sent.request,
    signal: AbortSignal.timeout((hub.timeout + LONGEST_BATCH) * 1000),
  });
  const answer = await bounded(response, limit + AROUND);
  if (response.status !== 200) {
    // The relay's own word, or its neighbour's: it says nothing about the request.
    const few = new TextDecoder().decode(answer).includes('"too-few"');
    if (!few) hub.told = undefined; // it may pass requests on to another gateway by now
    const wait = response.headers.get("Retry-After");
    return new Response(few ? '{"error": "too-few"}' : null, { status: 503, headers: wait ? { "Retry-After": wait } : {} });
  }
  const opened = await sent.open(answer);
  const said = opened && decodeResponse(opened);
  if (!said) {
    hub.told = undefined;
    throw new TypeError("not an answer of the hub");
  }
  const { status, content } = said;
  return new Response(status === 204 || status === 304 ? null : content, { status, headers: [...said.fields] });
}
