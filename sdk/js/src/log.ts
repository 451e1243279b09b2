/**
 * A hub's log: why a page may rank with a model (section 10 of the wire format).
 */

import type { HubClient, Refusal } from "./connection.js";
import type { Head } from "./kept.js";
import type { Memory } from "./memory.js";
import { type Bytes, concat, fromNumber, text as utf8, unhex } from "./oblivious/bytes.js";
import type { changes, Terms, termsOf } from "./terms.js";
import type { Trust } from "./trust.js";

/** A public key with its name. */
interface Key {
  readonly name: string;
  readonly bytes: Bytes;
}

/** What is wrong; with two heads that cannot both be true, where there are. */
export class Unproven extends Error {
  constructor(
    message: string,
    readonly conflict: readonly [string, string] | null = null,
  ) {
    super(message);
  }
}

const DAY = 86_400;
/** Largest answer about a log, in bytes. */
const LOG = 65_536;
/** Most times that a hub was put back of which the heads are kept. */
const PUT_BACK = 16;

/** Whether an entry about a model says its round. */
const says = ({ length }: Bytes): boolean => length === 37 || length === 69;
/** Bytes of entries of which there is one for each number, by their kind. */
const NUMBERED: Record<number, number> = { 3: 37, 4: 37, 5: 41 };
/** The round in an entry about a model, or the epoch in one about tokens. */
const numberIn = (entry: Bytes): number => new DataView(entry.buffer).getUint32(1);
/** The time in an entry that says that the log was put back, or in one about a key, in seconds since 1970. */
const timeIn = (entry: Bytes): bigint => new DataView(entry.buffer).getBigUint64(entry[0] === 6 ? 1 : 2);
/** A number as eight bytes, big-endian. */
const u64 = (number: number): Bytes => fromNumber(BigInt(number), 8);
/** The key that takes the place of another, by an entry (10.11); the one before it stands in front of it. */
const keyIn = (entry: Bytes): Bytes => entry.slice(42, 74);

const hex = (bytes: Bytes): string => [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");

/** Bytes from base64 in its one canonical form. */
function bytesOf(text: unknown): Bytes {
  const raw = atob(text as string);
  if (typeof text !== "string" || btoa(raw) !== text) throw new Unproven("not base64");
  return Uint8Array.from(raw, (character) => character.charCodeAt(0));
}

async function sha(...parts: (Bytes | number[])[]): Promise<Bytes> {
  return new Uint8Array(await crypto.subtle.digest("SHA-256", concat(...parts.map((part) => Uint8Array.from(part)))));
}

export const leafHash = (entry: Bytes) => sha([0], entry);
const nodeHash = (left: Bytes, right: Bytes) => sha([1], left, right);

/** Append a leaf to the frontier of a tree of a size. */
async function append(frontier: Bytes[], size: number, leaf: Bytes): Promise<void> {
  for (; size % 2; size = Math.floor(size / 2)) leaf = await nodeHash(frontier.pop()!, leaf);
  frontier.push(leaf);
}

/** Hash of the tree with a frontier of at least one hash, hexadecimal. */
async function rootOf(frontier: readonly Bytes[]): Promise<string> {
  let hash = frontier[frontier.length - 1];
  for (let i = frontier.length - 2; i >= 0; i--) hash = await nodeHash(frontier[i], hash);
  return hex(hash);
}

/**
 * The hashes of a walk up a tree (RFC 9162, 2.1.3.2 and 2.1.4.2): of the part up to a leaf, of all, and of the part
 * before the leaf, if there is one; null where the proof is too short or too long.
 */
async function walk(fn: number, size: number, start: Bytes, proof: readonly Bytes[]): Promise<string[] | null> {
  let sn = size - 1;
  let before: Bytes | undefined;
  let first = start;
  let second = start;
  const up = () => {
    fn = Math.floor(fn / 2);
    sn = Math.floor(sn / 2);
  };
  for (const step of proof) {
    if (!sn) return null;
    if (fn % 2 || fn === sn) {
      before = before ? await nodeHash(step, before) : step;
      first = await nodeHash(step, first);
      second = await nodeHash(step, second);
      while (fn % 2 === 0 && fn) up();
    } else second = await nodeHash(second, step);
    up();
  }
  return sn ? null : [hex(first), hex(second), before ? hex(before) : ""];
}

/** Whether a leaf is in a tree. */
export async function included(leaf: Bytes, number: number, size: number, root: string, proof: readonly Bytes[]) {
  return number < size && (await walk(number, size, leaf, proof))?.[1] === root;
}

/** Whether a tree of at least one leaf is the beginning of another. */
export async function grew(old: number, oldRoot: string, size: number, root: string, proof: readonly Bytes[]) {
  if (old < 1 || old >= size) return old === size && !proof.length && oldRoot === root;
  let fn = old - 1;
  let n = size - 1;
  for (; fn % 2; fn = Math.floor(fn / 2)) n = Math.floor(n / 2);
  const path = fn ? proof.slice(1) : proof;
  const start = fn ? proof[0] : unhex(oldRoot);
  const both = start ? await walk(fn, n + 1, start, path) : null;
  return both !== null && both[0] === oldRoot && both[1] === root;
}

/** What a signature line names a key by: kind 1 is a log's, 4 a witness's. */
async function idOf(name: string, kind: number, key: Bytes): Promise<string> {
  return hex((await sha(utf8(`${name}\n`), [kind], key)).slice(0, 4));
}

async function verified(key: Bytes, signature: Bytes, ...message: Bytes[]): Promise<boolean> {
  try {
    const made = await crypto.subtle.importKey("raw", key, "Ed25519", false, ["verify"]);
    return await crypto.subtle.verify("Ed25519", made, signature, concat(...message));
  } catch (error) {
    if ((error as Error).name === "NotSupportedError") throw new Unproven("this browser verifies no Ed25519 signatures");
    return false;
  }
}

/**
 * Check what a hub says about its log.
 *
 * @param given The answer, from JSON.
 * @param agreed Whether terms of the log's first entry, from JSON, are those that the hub gave.
 * @param seen The head that was checked before; null: none was.
 * @param now Seconds since 1970.
 * @param messages The model message that came and, if it is used, that of the best model; none of them if only a key is
 *   asked about.
 * @param entry An entry about tokens that the tail has to have.
 * @returns The head; a number: it is to be asked for with a proof from that size, the one that was seen, or from 0 with
 *   the log's first entry.
 * @throws Error Something is wrong.
 */
export async function check(
  given: Record<string, unknown>,
  { hub, log, operator }: Terms,
  agreed: (logged: unknown) => boolean,
  seen: Head | null,
  trust: Trust,
  now: number,
  messages: readonly Bytes[],
  entry?: Bytes,
): Promise<Head | number> {
  const listed = (list: unknown = [], most = 128): unknown[] => {
    if (!Array.isArray(list) || list.length > most) throw new Unproven("not an answer about a log");
    return list;
  };
  const frontier = listed(given.frontier).map(bytesOf);
  const proof = listed(given.proof).map(bytesOf);
  const entries = listed(given.entries, 1024).map(bytesOf);
  const models = entries.filter(([kind]) => kind === 2);
  const note = given.checkpoint as string;
  if ([...frontier, ...proof].some(({ length }) => length !== 32) || !models.length || typeof note !== "string") {
    throw new Unproven("not an answer about a log");
  }
  // The head: three lines, an empty one, signatures.
  const cut = note.lastIndexOf("\n\n") + 1;
  const text = note.slice(0, cut);
  const [origin, digits, coded, ...more] = text.split("\n");
  const size = Number(digits);
  const lines = note.slice(cut + 1).split("\n");
  const name = `fedrank/${hub}`;
  const root = hex(bytesOf(coded));
  if (
    note.length > 16_384 ||
    lines.pop() !== "" ||
    lines.length > 64 ||
    more.slice(0, -1).includes("") ||
    origin !== name ||
    !Number.isSafeInteger(size) ||
    String(size) !== digits
  ) {
    throw new Unproven("not a head of the hub's log");
  }
  const signatures = lines.map((line) => {
    const [dash, name, raw, ...rest] = line.split(" ");
    if (dash !== "—" || rest.length) throw new Unproven("not a head of the hub's log");
    return { name, raw: bytesOf(raw) };
  });
  const by = async ({ name, bytes }: Key, kind: number) => {
    const id = await idOf(name, kind, bytes);
    return signatures.filter((one) => one.name === name && hex(one.raw.slice(0, 4)) === id).map(({ raw }) => raw.slice(4));
  };
  // A log that was put back from a backup says so, and so does one whose keys changed.
  let recovered = 0;
  let bytes = unhex(log);
  let right = true;
  let last = 0;
  const said: string[] = [];
  const bound: Bytes[] = [];
  const keys: Record<number, string> = {};
  for (const one of listed(given.notices) as { number: number; entry: unknown; proof: unknown }[]) {
    const { number } = one;
    const entry = bytesOf(one.entry);
    const [kind, what] = entry;
    const length = kind === 6 ? 9 : 74;
    const signers = kind === 6 ? [] : what === 1 ? [bytes] : [];
    if (operator && (kind === 6 || what === 1)) signers.push(unhex(operator));
    right &&= (kind === 6 || kind === 7) && entry.length === length + 64 * signers.length;
    right &&= Number.isSafeInteger(number) && number > last && number < size;
    const path = listed(one.proof).map(bytesOf);
    const walked: string[] | null = right ? await walk(number, size, await leafHash(entry), path) : null;
    right = walked?.[1] === root;
    // That the log was put back is signed for its place: what is before it, and the key in force there.
    const place = kind === 6 && walked ? concat(u64(number), unhex(walked[2]), bytes) : new Uint8Array();
    for (let i = 0; right && i < signers.length; i++) {
      const signature = entry.slice(length + 64 * i).slice(0, 64);
      right = await verified(signers[i], signature, utf8(`${name}\n`), entry.slice(0, length), place);
    }
    if (!right) throw new Unproven("nothing proves what the log says of its keys, or that it was put back");
    last = number;
    said.push(hex(entry));
    bound.push(u64(number), await sha(entry));
    if (kind === 6) recovered = Number(timeIn(entry));
    else {
      right = timeIn(entry) > (keys[what] ? timeIn(unhex(keys[what])) : 0);
      if (what === 1) {
        right &&= hex(entry.slice(10, 42)) === hex(bytes);
        bytes = keyIn(entry);
      }
      keys[what] = hex(entry);
    }
  }
  // What is signed has their hash, so that whoever carries the answer leaves none out.
  const line = last ? `notices ${btoa(String.fromCharCode(...(await sha(...bound))))}` : "";
  if (more.filter((one) => one.startsWith("notices ")).join("\n") !== line) {
    throw new Unproven("the log's head is not about the notices that came");
  }
  const wentBack = recovered > (seen?.recovered ?? 0);
  if (wentBack && recovered > now + DAY) throw new Unproven("the log was put back at a time more than a day ahead");
  // No key is there again that another took the place of; only an operator can have a log go back behind that.
  const kept = (!(wentBack && operator) && seen?.keys) || {};
  for (const what in kept) {
    const pinned = kept[what];
    const newest = keys[+what];
    const later = newest && (newest === pinned || timeIn(unhex(newest)) > timeIn(unhex(pinned)));
    right &&= what === "1" ? said.includes(pinned) : wentBack || !!later;
  }
  const own = await by({ name, bytes }, 1);
  for (const raw of own) right &&= await verified(bytes, raw, utf8(text));
  if (!right || !own.length) throw new Unproven("the log's head is not signed by the key of the terms or its successor");
  // The tree.
  let at = size - entries.length;
  if (at < 0 || [...at.toString(2)].filter((bit) => bit === "1").length !== frontier.length) {
    throw new Unproven("the log's tail does not fit to its size");
  }
  const before = at;
  let then = "";
  for (const entry of entries) {
    if (at === seen?.size) then = await rootOf(frontier);
    await append(frontier, at++, await leafHash(entry));
  }
  if ((await rootOf(frontier)) !== root) throw new Unproven("the log's tail does not have the hash of its head");
  if (!seen || wentBack) {
    if (seen && before && !given.terms) return 0; // as at first sight: the hub's terms are the log's first entry
    const first = before ? bytesOf(given.terms) : entries[0];
    if (before && !(await included(await leafHash(first), 0, size, root, proof))) {
      throw new Unproven("nothing proves what the log's first entry is");
    }
    if (first[0] !== 1 || !agreed(JSON.parse(new TextDecoder().decode(first.slice(1))))) {
      throw new Unproven("the terms in the log are not those that the hub gave");
    }
  } else {
    if (at === seen.size) then = root;
    const fork = then !== "" && then !== seen.root;
    let why = fork ? "the hub shows different people different logs" : "";
    if (size < seen.size) why = "the log is shorter than before";
    else if (!then && !proof.length) return seen.size;
    else if (!then && !(await grew(seen.size, seen.root, size, root, proof))) why = "nothing proves that the log only grew";
    if (why) throw new Unproven(why, fork ? [seen.note, note] : null);
  }
  // The models: each is of a later round than the one before it, and the newest says its round.
  const newest = models[models.length - 1];
  const data = hex(newest.slice(1));
  if (!says(newest)) throw new Unproven("the log does not say which round its newest model is of");
  const known = seen?.model && !wentBack ? parseInt(seen.model.slice(0, 8), 16) : -1;
  let later = data === seen?.model || numberIn(newest) > known;
  last = -1;
  for (const entry of models) {
    later &&= says(entry) ? numberIn(entry) > last : last < 0 && (entry.length === 33 || entry.length === 65);
    if (says(entry)) last = numberIn(entry);
  }
  if (!later) throw new Unproven("the log has two models of one round, or a round that goes back");
  // The witnesses.
  let count = 0;
  for (const trusted of trust.keys) {
    const witness: Key = { name: trusted.slice(0, trusted.indexOf("+")), bytes: bytesOf(trusted.slice(-44)).slice(1) };
    for (const raw of await by(witness, 4)) {
      if (raw.length !== 72) continue;
      const time = new DataView(raw.buffer, raw.byteOffset).getBigUint64(0);
      const recent = time >= now - DAY && time <= now + DAY;
      if (recent && (await verified(witness.bytes, raw.slice(8), utf8(`cosignature/v1\ntime ${time}\n${text}`)))) {
        count++;
        break;
      }
    }
  }
  if (count < trust.quorum) throw new Unproven(`${count} witnesses cosigned the log lately, ${trust.quorum} are needed`);
  let named = messages.length ? hex(messages[0].slice(1, 5).reverse()) : "";
  for (const message of messages) named += hex(await sha(message));
  if (data.slice(0, named.length) !== named) throw new Unproven("the newest model in the log is another");
  // Offers of tokens, reports before an epoch, draws: one for each number.
  const numbered = new Map<string, string>();
  let since = new Map<string, string>();
  for (const one of entries) {
    // What comes after the log was put back takes the place of what was before, and offers do after the issuer's key.
    if (one[0] === 6) since = new Map();
    if (one[0] === 7 && one[1] === 3) for (const name of since.keys()) if (name < "04") since.delete(name);
    const size = NUMBERED[one[0]];
    if (!size) continue;
    const [name, data] = [hex(one.slice(0, 5)), hex(one)];
    if (one.length !== size || (since.get(name) ?? data) !== data) {
      throw new Unproven("the log has two keys or two draws of the tokens of one epoch");
    }
    since.set(name, data);
    numbered.set(name, data);
  }
  if (entry && numbered.get(hex(entry.slice(0, 5))) !== hex(entry)) {
    throw new Unproven(`the log does not say that of the tokens of epoch ${numberIn(entry)}`);
  }
  return { size, root, note, model: data, recovered: Math.max(recovered, seen?.recovered ?? 0), keys };
}

/** The gateway's key, and the one before it, if it had one (10.11). */
export const gatewayKeys = (terms: Terms, head?: Head): Bytes[] => {
  const entry = head?.keys?.[2] && unhex(head.keys[2]);
  return entry ? [keyIn(entry), entry.slice(10, 42)] : [unhex(terms.gateway)];
};

/** What a device has that asks about its hub's log. */
export interface Asking {
  readonly memory: Memory;
  readonly hub: HubClient;
  readonly trust: Trust;
  readonly terms: Terms;
  readonly Refusal: typeof Refusal;
  readonly termsOf: typeof termsOf;
  readonly changes: typeof changes;
}

/**
 * Why models, or what is said about tokens, are not used; empty if the hub's log proves them. The head that was checked
 * is kept.
 *
 * @param messages As of `check`.
 * @param entry As of `check`.
 */
export async function objection(
  { memory, hub, trust, terms, Refusal, termsOf, changes }: Asking,
  messages: readonly Bytes[],
  entry?: Bytes,
): Promise<string | Refusal> {
  const name = terms.hub;
  const seen = await memory.change(({ heads }) => heads?.[name] ?? null);
  const agreed = (logged: unknown) => {
    const first = termsOf(logged);
    return first.hub === name && !Object.keys(changes(terms, first)).length;
  };
  // Asked without a token; what everybody gets or, where that does not reach back far enough, with a proof.
  let from = seen ? -1 : 0;
  for (let asked = 0; asked < 2; asked++) {
    hub.sized ||= from > 0;
    const answer = await hub.ask("GET", `/v1/log${from < 0 ? "" : `/${from}`}`, "", LOG);
    if (answer.status !== 200) return Refusal.of("log", answer);
    try {
      const given = JSON.parse(new TextDecoder().decode(answer.body));
      const head = await check(given, terms, agreed, seen, trust, Date.now() / 1000, messages, entry);
      if (typeof head === "number") {
        from = head;
        continue;
      }
      await memory.change((kept) => {
        const heads = (kept.heads ??= {});
        const [now, before] = [head.recovered ?? 0, heads[name]?.recovered ?? 0];
        // Another page may have seen a newer one.
        if (now > before || (now === before && !((heads[name]?.size ?? 0) > head.size))) heads[name] = head;
        // Tokens of an issuer's key that another took the place of are void.
        const old = head.keys?.[3]?.slice(20, 84);
        const tokens = kept.purse?.tokens ?? {};
        for (const one in tokens) {
          const content = tokens[one].token ?? tokens[one].asked?.content;
          if (one.startsWith(name) && content && hex(content.slice(66, 98)) === old) delete tokens[one];
        }
        if (!seen || now <= (seen.recovered ?? 0)) return;
        // The hub was put back from a backup: both heads are kept, and its tokens are void.
        const found = ((kept.putBack ??= {})[name] ??= []);
        if (!found.some(([when]) => when === now)) found.push([now, seen.note, head.note]);
        if (found.length > PUT_BACK) found.splice(1, 1); // the oldest and the newest stay
        for (const one in tokens) if (one.startsWith(name)) delete tokens[one];
        memory.complain(`the hub was put back from a backup, as its log says (at ${now})`);
      });
      return "";
    } catch (error) {
      if (!(error instanceof Unproven)) return "what it says about its log cannot be read";
      const { conflict } = error;
      if (conflict) await memory.change((kept) => void ((kept.conflicts ??= {})[name] ??= conflict));
      return error.message;
    }
  }
  return "nothing proves that the log only grew";
}
