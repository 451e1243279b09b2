/** What goes wrong, by who has to do something about it. */

/** A setting of the app that can never work. */
export class ConfigError extends Error {
  override name = "ConfigError";
}

/** No answer came, or none that can be read to its end. */
export class NoAnswer extends Error {}

/** Something that a hub sent, or that was kept, and that is not in the wire format. */
export class WireError extends Error {
  override name = "WireError";
}
