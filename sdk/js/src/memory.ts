/** The state of a running device: token, terms, model, the trial of its round; and whether it may send. */

import * as k from "./kept.js";
import { decodeModel, type Model } from "./messages.js";
import type { Store } from "./store.js";
import { MemoryStore } from "./store.js";
import { changes, epsilonLife, epsilonMessage, type Limits, objection, type Terms, termsOf } from "./terms.js";
import { after, complete, Round, stepOf } from "./trial.js";
import type { Words } from "./words.js";

/** What one device holds in memory, and its store. */
export class Memory {
  token: string | null = null;
  /** A token that the hub is still to forget. */
  leaving: string | null = null;
  terms: Terms | null = null;
  round: Round | null = null;
  /** Training is over. */
  over = false;
  /** The user has opted out. */
  out = false;
  /** The opting out could not be written. */
  unsaved = false;
  closed = false;
  /** The hub offers terms that the app has not agreed to. */
  disagrees = false;
  /** There may be something kept that cannot be read: it may say that the user has opted out. */
  unreadable = false;
  /** Sum of the ε of all messages that left. */
  spent = 0;
  #opened = false;
  #writing = 0;
  #last: Promise<unknown> = Promise.resolve();
  #said = new Set<string>();

  constructor(
    public store: Store,
    readonly url: string,
    readonly limits: Limits,
    /** What is sent goes through a relay. */
    readonly relayed: boolean,
    readonly words: Words,
    readonly log: (message: string) => void,
  ) {}

  /** Log an error, the same message only once. */
  complain(message: string): void {
    if (this.#said.has(message) || this.#said.size >= 100) return;
    this.#said.add(message);
    this.log(message);
  }

  /**
   * One transaction of the store. Where the record was deleted, what is known of the life before goes on: what was
   * spent and that the user opted out, from memory or from what the store has beside the record.
   */
  async change<T>(step: (kept: k.Kept) => T, ended?: k.Ended): Promise<T> {
    return this.store.change((kept) => {
      if (kept.url === null) {
        const { spent, out, url } = this;
        if (this.#opened) Object.assign(kept, { erased: Math.max(kept.erased, spent), out: kept.out || out });
        if (this.#opened || kept.erased || kept.out) this.complain("what was kept is gone; the ε that was spent still counts");
        Object.assign(kept, { url, since: Date.now() });
      }
      // An app's store may know of no second argument; the opting out may not have been written.
      kept.ended = this.out ? [] : (kept.ended ?? (ended && [ended]));
      k.addEnded(kept, this.words);
      const result = step(kept);
      this.spent = k.spent(kept);
      return result;
    }, ended);
  }

  /** Keep these values. */
  put(values: Partial<k.Kept>): Promise<unknown> {
    return this.change((kept) => Object.assign(kept, values));
  }

  /** Read the state for the first time; where nothing can be read, the device goes on in memory, silent. */
  async open(): Promise<void> {
    try {
      await this.load();
    } catch (error) {
      this.unreadable = true;
      this.complain(`what was kept cannot be read: ${(error as Error).name}`);
      this.store.close();
      this.store = new MemoryStore();
      await this.load();
    }
    this.#opened = true;
  }

  /** Read the state; a step before that, in the same transaction, may change what is kept. */
  async load(step: (kept: k.Kept) => void = () => {}): Promise<void> {
    let damage = "";
    const [kept, terms, model] = await this.change((kept): [k.Kept, Terms | null, Model | null] => {
      if (kept.url !== this.url) k.forgetHub(kept); // a token never goes to another hub
      kept.url = this.url;
      step(kept);
      try {
        const terms = kept.terms && termsOf(kept.terms);
        return [kept, terms, terms && kept.model && decodeModel(terms, kept.model)];
      } catch (error) {
        damage = (error as Error).name;
        const { leaving, url } = kept;
        k.forgetHub(kept);
        Object.assign(kept, { leaving, url }); // a record without an address is a new one
        return [kept, null, null];
      }
    });
    if (damage) this.complain(`what was kept is damaged: ${damage}`);
    this.out = kept.out || this.unsaved;
    this.disagrees = kept.offered !== null;
    this.terms = terms;
    this.token = kept.token;
    this.leaving = kept.leaving;
    this.use(kept, model);
  }

  /** Rank with this model from now on. */
  use(kept: k.Kept, model: Model | null): void {
    this.over = kept.over;
    if (!this.terms || !model) {
      this.round = null;
      return;
    }
    const { hub } = this.terms;
    const trial = k.trialOf(kept, hub, model.round);
    const reported = k.reported(kept, hub, model.round);
    if (!this.round?.isAbout(this.terms, model) || this.round.part !== kept.part)
      this.round = new Round(
        this.terms,
        model,
        trial,
        reported,
        kept.part,
        kept.best && decodeModel(this.terms, kept.best).weights,
      );
    else {
      if (!this.#writing) this.round.trial = trial ?? this.round.trial;
      this.round.reported ||= reported;
    }
  }

  /** Whether the next interaction will count for learning. */
  learns(): boolean {
    const { round } = this;
    if (!round || round.reported || round.part === -1) return false;
    return !(this.over || this.closed || this.silence());
  }

  /** Why nothing is sent; empty if messages may be sent. */
  silence(): string {
    if (this.out) return "the user has opted out";
    if (this.unreadable) return "what was kept cannot be read";
    if (this.disagrees) return "the hub's terms changed, and the app has not agreed to them";
    if (!this.terms) return "";
    const { lifetimeEpsilon: lifetime } = this.limits;
    const no = objection(this.terms, this.limits);
    if (no) return no;
    if (this.terms.batch && !this.relayed) return "the hub's terms have reports go through a relay; give its address";
    if (this.limit < Infinity && !this.store.lasting) {
      const what = lifetime < Infinity ? "lifetimeEpsilon" : "the terms' number of messages";
      return `${what} cannot be kept to: the store does not last`;
    }
    if (k.exceeds(this.spent, epsilonMessage(this.terms), this.limit)) {
      const own = lifetime <= epsilonLife(this.terms);
      const most = own ? `lifetimeEpsilon = ${lifetime}` : `the ${this.terms.participations} of the hub's terms`;
      return `ε = ${this.spent.toPrecision(4)} was spent; another would exceed ${most}`;
    }
    return "";
  }

  /** Largest sum of the ε of all messages: the app's, or that of the messages which the terms allow. */
  get limit(): number {
    const { lifetimeEpsilon: lifetime } = this.limits;
    return this.terms ? Math.min(lifetime, epsilonLife(this.terms)) : lifetime;
  }

  /**
   * Why nothing is sent under terms that the hub hands out now; empty if they are those agreed to.
   *
   * The first terms of a hub are agreed to by enrolling, within the app's limits. A hub of another name may have the
   * same terms. What else is offered is kept for the app to agree to.
   */
  disagreement(kept: k.Kept, terms: Terms): string {
    const agreed = kept.agreed ?? kept.terms;
    if (!agreed) return "";
    const changed = Object.keys(changes(agreed, terms));
    if (!changed.length) return "";
    if (terms.hub === agreed.hub) {
      return "the hub changed its terms under the same name";
    }
    k.dropTrial(kept);
    kept.offered = terms;
    return `the hub's terms changed (${changed.join(", ")}); the app has to agree`;
  }

  /** End the open interaction; returns whether it counts. Its clicks are forgotten when this returns. */
  end(): boolean {
    const now = this.round;
    const over = now?.open;
    if (!now || !over) return false;
    now.open = null;
    const held = now.trial;
    if (now.reported || held?.seed !== over.trial.seed) return false;
    const { terms } = now;
    const step = stepOf(terms, over, this.words);
    now.trial = after(held, step);
    now.reported = complete(terms, now.trial);
    this.#write(now, { held: { ...held, since: held.since ?? Date.now() }, step });
    if (now.reported) now.trial = null;
    return true;
  }

  /** Write what an interaction adds; the app does not wait for it. */
  #write(round: Round, ended: k.Ended): void {
    this.#writing++;
    const { hub, round: number } = ended.held;
    const done = this.change((kept) => k.trialOf(kept, hub, number), ended).then(
      (trial) => {
        this.#writing--;
        if (this.out || (this.#writing && trial)) return; // dropped; or what is written next is in memory already
        round.trial = trial;
        round.reported ||= !trial;
      },
      (error) => {
        this.#writing--;
        this.complain(`an interaction is lost: ${(error as Error).name}`);
        // What was not written may have been: what is kept goes on, and not what is here.
        round.drop();
        round.reported = false;
      },
    );
    this.#last = this.#last.then(() => done);
  }

  /** Fulfilled when everything that ended has been written, or could not be. */
  async settled(): Promise<void> {
    await this.#last;
  }
}
