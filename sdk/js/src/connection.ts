/** A device's requests to its hub, and what they can come to (sections 7 and 8 of the wire format). */

import { bounded } from "./bounded.js";
import { ConfigError, NoAnswer, WireError } from "./errors.js";
import { COUNTED, NOT_DUE, OVER, REFUSED, TOO_LATE } from "./kept.js";
import { decodeModel, modelBytes } from "./messages.js";
import { type Bytes, fromBase64url, text as utf8 } from "./oblivious/bytes.js";
import { type Told, through } from "./relay.js";
import { type Terms, termsOf } from "./terms.js";

/** Largest answer to an enrolment, and largest refusal, in bytes. */
const ENROLMENT = 65_536;
const REFUSAL = 4096;
/** Outcome of a message by the status code of the answer; other codes say nothing about it. */
const OUTCOMES: Record<number, string | undefined> = {
  200: COUNTED,
  201: COUNTED,
  400: REFUSED,
  410: OVER,
  413: REFUSED,
  422: REFUSED,
};
/** Outcome where the hub's current round is another, by its reason. */
const OTHER_ROUND = new Map([
  ["stale-round", TOO_LATE],
  ["early-round", TOO_LATE],
  ["not-due", NOT_DUE],
]);
/** The hub's own reasons after which a message was certainly not counted, and may be later. */
const NOT_NOW = ["unauthorised", "between-rounds", "unavailable", "too-many"];

/** A request that the hub refused, or answered with something that cannot be read. */
export class Refusal {
  constructor(
    readonly why: string,
    /** Seconds that the hub asks to wait; null if it does not. */
    readonly retryAfter: number | null = null,
    /** The hub does not know the token. */
    readonly unauthorised = false,
    /** A message that was sent has certainly not been counted. */
    readonly notCounted = false,
    /** The hub's own word for it; empty: it said none. */
    readonly reason = "",
  ) {}

  static of(what: string, { status, reason, headers, known }: Answer): Refusal {
    const after = headers.get("Retry-After") ?? "";
    const why = `${what}: status ${status}${reason ? `, ${reason}` : ""}`;
    const wait = /^\d{1,9}$/.test(after) ? Number(after) : null;
    return new Refusal(why, wait, known && status === 401, NOT_NOW.includes(reason), reason);
  }
}

/** An answer. */
export interface Answer {
  readonly status: number;
  readonly body: Bytes;
  readonly headers: Headers;
  /** The hub's reason of a refusal; empty: it gave none. */
  readonly reason: string;
  /** The request showed a token that tells who asks. */
  readonly known: boolean;
}

/**
 * Makes statements.
 *
 * @param challenge What the statement has to be about.
 * @param kinds Kinds that the hub accepts.
 * @returns The kind of the statement and the statement, which JSON can write.
 */
export type Attest = (challenge: Bytes, kinds: readonly string[]) => Promise<readonly [kind: string, statement: unknown]>;

/** Enrol with a statement about a challenge of the hub; the answer, or one that says what went wrong before. */
async function attested(hub: HubClient, enrolment: string, attest: Attest): Promise<Answer> {
  const asked = await hub.ask("POST", "/v1/challenge", enrolment, ENROLMENT);
  if (asked.status !== 201) return { ...asked, reason: `challenge, ${asked.reason}` };
  let body: Bytes;
  try {
    const { challenge, kinds } = JSON.parse(text(asked.body));
    const [kind, statement] = await attest(fromBase64url(challenge), kinds.map(String));
    body = utf8(JSON.stringify({ kind, challenge, statement }));
  } catch (error) {
    // Of the app's function, or of the platform: without its own words.
    return { ...asked, status: 0, reason: `no statement, ${error instanceof Error ? error.name : "error"}` };
  }
  const answer = await hub.ask("POST", "/v1/enrol", enrolment, ENROLMENT, {}, body);
  if (answer.reason !== "not-attested") return answer;
  return { ...answer, reason: `not-attested, ${String(JSON.parse(text(answer.body)).why).slice(0, 40)}` };
}

/** Whether a text can stand as a token in a header. */
export function usableToken(token: unknown): token is string {
  return typeof token === "string" && /^[!-~]{8,512}$/.test(token);
}

/** The hub's address without a slash at its end; a ConfigError where it cannot be used. */
function checkedUrl(hub: string, allowHttp: boolean): string {
  try {
    const { protocol, hostname, username, password, search, hash, href } = new URL(hub, globalThis.location?.href);
    const near = /^(localhost|127\.\d+\.\d+\.\d+|\[::1\])$/.test(hostname);
    const safe = protocol === "https:" || (protocol === "http:" && (near || allowHttp));
    if (safe && !(username + password + search + hash)) return href.replace(/\/+$/, "");
  } catch {
    // not a URL
  }
  throw new ConfigError("hub must be a URL, https or of this machine, without user, query and fragment.");
}

/** Requests of a device. They throw NoAnswer where no answer comes. */
export class HubClient {
  readonly url: string;
  /** URL of the relay that everything goes through; undefined: nothing does. */
  readonly relay: string | undefined;
  /** What the relay says of itself, and the gateway's key in the hub's terms. */
  told?: Told | undefined;
  /**
   * It was told in this synchronisation which size of the log the device saw last. A hub could have given each device a
   * size of its own, so that a size tells who asks as a token does.
   */
  sized?: boolean;
  gateway?: Bytes;

  /**
   * @param timeout Longest time of a request, in seconds.
   * @param attest Makes statements of the device's platform.
   */
  constructor(
    hub: string,
    allowHttp: boolean,
    readonly timeout: number,
    relay?: string,
    readonly attest?: Attest,
  ) {
    this.url = checkedUrl(hub, allowHttp);
    this.relay = relay && checkedUrl(relay, allowHttp);
  }

  /** Enrol; the device's token and the hub's terms. */
  async enrol(enrolment: string): Promise<[string, Terms] | Refusal> {
    let answer = await this.ask("POST", "/v1/enrol", enrolment, ENROLMENT);
    if (answer.reason === "attestation-needed" && this.attest) {
      answer = await attested(this, enrolment, this.attest);
    }
    if (answer.status !== 201) return Refusal.of("enrolment", answer);
    try {
      const given = JSON.parse(text(answer.body));
      if (!/^[\w.~+/=-]{8,512}$/.test(given.token)) throw new WireError("no token of a device");
      return [given.token, termsOf(given.terms)];
    } catch (error) {
      const why = error instanceof WireError ? error.message : "not an answer of a hub";
      return new Refusal(`enrolment: the hub's answer cannot be read (${why})`);
    }
  }

  /**
   * The newest model, or the best one.
   *
   * @param token Empty: nobody is to know who asks.
   * @param tag Entity tag of the model that the device has; null if it has none.
   * @returns Its bytes, checked, or null if the device has it; its tag; and whether training is over.
   */
  async model(
    token: string,
    terms: Terms,
    tag: string | null,
    which = "model",
  ): Promise<[Bytes | null, string | null, boolean] | Refusal> {
    const named = tag === null ? {} : { "If-None-Match": tag };
    const answer = await this.ask("GET", `/v1/${which}`, token, modelBytes(terms), named);
    const over = answer.headers.get("Fedrank-State") === "done";
    const newTag = answer.headers.get("ETag");
    if (answer.status === 304 && tag !== null) return [null, tag, over];
    if (answer.status !== 200) return Refusal.of(which, answer);
    try {
      decodeModel(terms, answer.body);
    } catch (error) {
      return new Refusal(`model: ${(error as Error).message}`);
    }
    return [answer.body, newTag, over];
  }

  /** Send a message; its outcome as in the ledger. */
  async report(token: string, round: number, body: Uint8Array): Promise<string | Refusal> {
    const answer = await this.ask("POST", `/v1/report/${round}`, token, REFUSAL, {}, body);
    const { status, reason, known } = answer;
    // A 409 without a reason is not the hub's word; a blind token that the hub does not take is of no use.
    const refused = (status === 409 && reason) || (status === 401 && !known) ? REFUSED : null;
    return OUTCOMES[status] ?? OTHER_ROUND.get(reason) ?? refused ?? Refusal.of("report", answer);
  }

  /** Ask the hub to forget the token; null: the hub does not know it any more. */
  async leave(token: string): Promise<Refusal | null> {
    const answer = await this.ask("DELETE", "/v1/device", token, REFUSAL);
    return answer.status === 204 || answer.status === 401 ? null : Refusal.of("leaving", answer);
  }

  /**
   * Ask; every way to the hub goes through here.
   *
   * @param token What tells who asks, or the value of a header that does not; empty: neither.
   * @param limit Most bytes of an answer that is read.
   */
  async ask(
    method: string,
    path: string,
    token: string,
    limit: number,
    headers: Record<string, string> = {},
    body: Uint8Array | null = null,
  ): Promise<Answer> {
    const known = /^\S+$/.test(token);
    try {
      const request = {
        ...{ method, headers: { ...(token && { Authorization: known ? `Bearer ${token}` : token }), ...headers } },
        body: body as BodyInit | null,
        signal: AbortSignal.timeout(this.timeout * 1000),
        redirect: "error", // the token is for this hub
        credentials: "omit",
        cache: "no-store",
        referrerPolicy: "no-referrer",
      } as const;
      const response = this.relay
        ? await through(this, path, request, limit)
        : await fetch(this.url + path, request);
      const bytes = await bounded(response, response.ok ? limit : REFUSAL);
      let reason = "";
      if (response.status >= 400) {
        try {
          const { error } = JSON.parse(text(bytes));
          if (/^[a-z0-9-]{1,40}$/.test(error)) reason = error;
        } catch {
          // something in between answered; its status code counts
        }
      }
      return { status: response.status, body: bytes, headers: response.headers, reason, known };
    } catch (error) {
      throw new NoAnswer(error instanceof Error ? error.name : "error");
    }
  }
}

const text = (bytes: Uint8Array) => new TextDecoder().decode(bytes);
