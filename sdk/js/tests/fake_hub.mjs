// A hub of a few lines that speaks the protocol of devices, and misbehaves on demand.

import { createServer } from "node:http";

export const ENROLMENT = "enrolment-token-of-tests";

/** Terms of the private mode, one message of two searches. */
/** Limits of a device whose app allows everything. */
export const ANYTHING = { mostEpsilon: Infinity, mostSearchEpsilon: Infinity, lifetimeEpsilon: Infinity };
export const TERMS = {
  protocol: "foltr-es",
  wire: 1,
  hub: "0123456789abcdef0123456789abcdef",
  n_features: 2,
  ranker: "linear",
  hidden: 0,
  reward: "MaxRR",
  reward_values: null,
  depth: 3,
  interactions: 2,
  sigma: 0.5,
  mechanism: "piecewise",
  p: 1,
  epsilon: 1,
  inside: 1,
  outside: 1,
  clip: 1,
  interleaved: true,
  participations: null,
};

/** Terms of randomised response, one message of four searches. */
export const RESPONSE = {
  ...TERMS,
  mechanism: "randomised-response",
  p: 0.9,
  epsilon: null,
  inside: 0,
  outside: 0,
  interleaved: false,
  interactions: 4,
};

/** A model message, written from its description. */
export function modelBytes(round, weights) {
  const view = new DataView(new ArrayBuffer(5 + 4 * weights.length));
  view.setUint8(0, 0x21);
  view.setUint32(1, round, true);
  weights.forEach((weight, i) => view.setFloat32(5 + 4 * i, weight, true));
  return Buffer.from(view.buffer);
}

export class FakeHub {
  terms = TERMS;
  round = 7;
  weights = [1, -1];
  state = "open";
  /** What was asked: { method, path, token, headers, body }. */
  seen = [];
  /** Answers to the next requests that begin so: [start, status, headers, body]; a status of 0: counted, no answer. */
  faults = [];
  /** What is said about the log. */
  answers = null;
  /** What a relay at this address says of itself. */
  relay = null;
  tokens = [];
  issued = 0;
  reports = new Map();

  async start() {
    this.server = createServer((request, response) => {
      const parts = [];
      request.on("data", (part) => parts.push(part));
      request.on("end", () => this.#answer(request, response, Buffer.concat(parts)));
    });
    await new Promise((resolve) => this.server.listen(0, "127.0.0.1", resolve));
    this.url = `http://127.0.0.1:${this.server.address().port}`;
    return this;
  }

  stop() {
    this.server.closeAllConnections();
    return new Promise((resolve) => this.server.close(resolve));
  }

  asked(start) {
    return this.seen.filter(({ method, path }) => `${method} ${path}`.startsWith(start));
  }

  #answer(request, response, body) {
    const { method, url: path, headers } = request;
    const token = (headers.authorization ?? "").replace("Bearer ", "");
    this.seen.push({ method, path, token, headers, body });
    const fault = this.faults.findIndex(([start]) => `${method} ${path}`.startsWith(start));
    let [status, named, out] = this.#right(method, path, token, headers, body);
    if (fault >= 0) {
      const [, other, otherHeaders = {}, text = ""] = this.faults.splice(fault, 1)[0];
      if (!other) return response.destroy();
      [status, named, out] = [other, otherHeaders, text];
    }
    response.writeHead(status, named);
    response.end(out);
  }

  #right(method, path, token, headers, body) {
    const refused = (status, error) => [status, {}, JSON.stringify({ error, detail: "" })];
    if (path === "/v1/enrol") {
      if (token !== ENROLMENT) return refused(401, "unauthorised");
      this.tokens.push(`device-token-${this.issued++}`);
      return [201, {}, JSON.stringify({ token: this.tokens.at(-1), terms: this.terms })];
    }
    if (path === "/" && this.relay) return [200, {}, this.relay()];
    if (path.startsWith("/v1/log")) return [200, {}, JSON.stringify(this.answers)];
    if (!this.tokens.includes(token)) return refused(401, "unauthorised");
    if (method === "DELETE") {
      this.tokens = this.tokens.filter((other) => other !== token);
      return [204, {}, ""];
    }
    if (path === "/v1/model") {
      const given = { ETag: `"opaque ${this.round} ${this.weights}"`, "Fedrank-State": this.state };
      if (headers["if-none-match"] === given.ETag) return [304, given, ""];
      return [200, given, modelBytes(this.round, this.weights)];
    }
    const key = `${path} ${token}`;
    if (this.state === "done") return refused(410, "done");
    if (this.reports.has(key)) {
      return this.reports.get(key).equals(body) ? [200, {}, ""] : refused(409, "conflict");
    }
    if (path !== `/v1/report/${this.round}`) return refused(409, "stale-round");
    this.reports.set(key, body);
    return [201, {}, ""];
  }
}
