// Compiles the modules into build/ (for the tests) and one minified file with its types into dist/.
//
// Prints the size of that file after gzip, as a web server sends it, and fails above the limit.

import { execFileSync } from "node:child_process";
import { cpSync, mkdirSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";
import { minify } from "terser";

/**
 * Bundles and the most bytes of each after gzip. The first is the whole device: a service worker may not load anything
 * later. Rotation of keys takes 500 of the bytes.
 */
const BUNDLES = [
  ["dist/fedrank-device.js", "build/index.js", 21_600],
  ["dist/attest.js", "build/attest.js", 1_000],
];

const here = fileURLToPath(new URL(".", import.meta.url));
process.chdir(here);
for (const folder of ["build", "dist"]) rmSync(folder, { recursive: true, force: true });
execFileSync(process.execPath, ["node_modules/typescript/bin/tsc"], { stdio: "inherit" });
mkdirSync("dist/types", { recursive: true });
for (const file of readdirSync("build", { recursive: true })) {
  if (file.endsWith(".d.ts")) cpSync(`build/${file}`, `dist/types/${file}`);
}
for (const [outfile, entry, limit] of BUNDLES) {
  const options = { bundle: true, format: "esm", target: "es2022", charset: "utf8", write: false };
  const { outputFiles } = await build({ entryPoints: [entry], ...options });
  const { code } = await minify(outputFiles[0].text, { module: true, ecma: 2022, compress: { passes: 3, inline: 0 } });
  writeFileSync(outfile, code);
  const bytes = Buffer.from(code);
  const size = gzipSync(bytes, { level: 9 }).length;
  console.log(`${outfile}: ${bytes.length} bytes, ${size} after gzip (limit ${limit})`);
  if (size > limit) {
    console.error(`The bundle is ${size - limit} bytes too large.`);
    process.exit(1);
  }
}
