// Compiles the modules into build/ (for the tests) and one minified file with its types into dist/.
//
// Prints the size of that file after gzip, as a web server sends it, and fails above the limit.

import { execFileSync } from "node:child_process";
import { cpSync, mkdirSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

/** Most bytes of the bundle after gzip. */
const LIMIT = 12_000;

const here = fileURLToPath(new URL(".", import.meta.url));
process.chdir(here);
for (const folder of ["build", "dist"]) rmSync(folder, { recursive: true, force: true });
execFileSync(process.execPath, ["node_modules/typescript/bin/tsc"], { stdio: "inherit" });
const bundle = "dist/fedrank-device.js";
await build({
  entryPoints: ["build/index.js"],
  outfile: bundle,
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  charset: "utf8",
});
mkdirSync("dist/types");
for (const file of readdirSync("build")) if (file.endsWith(".d.ts")) cpSync(`build/${file}`, `dist/types/${file}`);
const bytes = readFileSync(bundle);
const size = gzipSync(bytes, { level: 9 }).length;
console.log(`${bundle}: ${bytes.length} bytes, ${size} after gzip (limit ${LIMIT})`);
if (size > LIMIT) {
  console.error(`The bundle is ${size - LIMIT} bytes too large.`);
  process.exit(1);
}
