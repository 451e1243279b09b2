/** Parts of the SDK that are loaded when they are needed. */

/** No answer came, or none that can be read to its end. */
export class NoAnswer extends Error {}

/** A part, or NoAnswer where it cannot be loaded. */
export const later = <T>(part: Promise<T>): Promise<T> =>
  part.catch(() => {
    throw new NoAnswer("a part of the SDK cannot be loaded");
  });
