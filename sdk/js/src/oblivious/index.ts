/** Tokens and relays, for pages whose hub asks for them: a file of its own. Section 11 of the wire format. */

export { type BinaryResponse, decodeResponse, encodeRequest } from "./binary_http.js";
export { type Encapsulated, encapsulate, gatewayKeyIn } from "./encapsulation.js";
export { type Asked, askFor, challengeOf, epochChallenge, headerOf, modulusIn, tokenOf } from "./tokens.js";
