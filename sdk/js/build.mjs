// Compiles the modules into build/ (for the tests) and minified files with their types into dist/.
//
// Prints the size of each file after gzip, as a web server sends it, and fails above its limit. `node build.mjs FOLDER`
// writes the device into that folder too: `npm run build` does so for the page of `fedrank demo web`.

import { execFileSync } from "node:child_process";
import { cpSync, mkdirSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";
import { minify } from "terser";

const DEVICE = "dist/fedrank-device.js";
/**
 * Bundles, their formats and the most bytes of each after gzip. The first is the whole device: a service worker may not
 * load anything later; that keys of the hub change takes 640 of its bytes, 140
 * of them for the check that no change was left out of what came. The second is the same for a <script>
 * without modules, as the global `fedrank`.
 */
const BUNDLES = [
  [DEVICE, "build/index.js", 21_550],
  ["dist/fedrank-device.iife.js", "build/index.js", 21_600],
  ["dist/attest.js", "build/attest.js", 1_000],
];
/** What was measured to make the device smallest after gzip; no function here relies on its own `this`. */
const SMALLEST = { passes: 3, inline: 0, hoist_funs: true, unsafe_arrows: true, pure_getters: true, lhs_constants: false };
/** Names that esbuild gives compress better than those that terser would give: by how often they stand in the file. */
const SHORTER = { minifySyntax: true, minifyIdentifiers: true };
/** Names of properties that are neither an app's, nor kept, nor sent, nor the browser's: they may become shorter. */
const INTERNAL = new RegExp(
  "^(memory|complain|settled|relayed|unsaved|unreadable|disagrees|isAbout|disagreement|numerators|weights|silence|" +
    "failures|limits?|reported|unauthorised|retryAfter|learns|team|fields|sized|late|trust|later|drawing|ranking|" +
    "objection|enrolment|enrol|kept|report|buy|shown)$",
);

/** A module whose one statement of export is the last, as a script that makes a global. */
function asGlobal(code) {
  const [, body, names] = /^(.*)export\{([^{}]+)\};$/s.exec(code);
  const exported = names.split(",").map((name) => name.split(" as ").reverse().join(":"));
  return `var fedrank=(()=>{${body}return{${exported}}})();`;
}

const here = fileURLToPath(new URL(".", import.meta.url));
process.chdir(here);
for (const folder of ["build", "dist"]) rmSync(folder, { recursive: true, force: true });
execFileSync(process.execPath, ["node_modules/typescript/bin/tsc"], { stdio: "inherit" });
mkdirSync("dist/types", { recursive: true });
for (const file of readdirSync("build", { recursive: true })) {
  if (file.endsWith(".d.ts")) cpSync(`build/${file}`, `dist/types/${file}`);
}
const mangle = { properties: { regex: INTERNAL } };
for (const [outfile, entry, limit] of BUNDLES) {
  const options = { bundle: true, format: "esm", target: "es2022", charset: "utf8", ...SHORTER, write: false };
  const { outputFiles } = await build({ entryPoints: [entry], ...options });
  let { code } = await minify(outputFiles[0].text, { module: true, ecma: 2022, compress: SMALLEST, mangle });
  if (outfile.includes(".iife.")) code = asGlobal(code);
  writeFileSync(outfile, code);
  const bytes = Buffer.from(code);
  const size = gzipSync(bytes, { level: 9 }).length;
  console.log(`${outfile}: ${bytes.length} bytes, ${size} after gzip (limit ${limit})`);
  if (size > limit) {
    console.error(`${outfile} is ${size - limit} bytes too large.`);
    process.exit(1);
  }
}
for (const folder of process.argv.slice(2)) cpSync(DEVICE, `${folder}/fedrank-device.js`);
