// The published test vectors of the wire format: the modules give what the file says, on every line.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { share } from "../build/exact.js";
import { draft, credited } from "../build/interleave.js";
import { laplaceScale } from "../build/laplace.js";
import { decodeModel, reportOf } from "../build/messages.js";
import { normal } from "../build/normal.js";
import { halves, perturbation } from "../build/perturbation.js";
import { privatise, threshold } from "../build/randomised_response.js";
import { rewardOf } from "../build/reward.js";
import { perturbed, ranked } from "../build/scores.js";
import { epsilonMessage, termsOf } from "../build/terms.js";
import { after, complete, halfOf, stepOf } from "../build/trial.js";

// Another file in the same form may be given: more rounds, made by the reference device for one run of the tests.
const file = process.env.FEDRANK_WIRE_VECTORS ?? new URL("../../../docs/reference/wire-vectors.json", import.meta.url);
const vectors = JSON.parse(readFileSync(file, "utf8"));
const bytes = (hex) => Uint8Array.from(Buffer.from(hex, "hex"));
const hex = (array) => Buffer.from(array).toString("hex");

/** Words that are given one request at a time, each of the size that is asked for. */
function given(...requests) {
  return (count) => {
    const next = requests.shift();
    assert.equal(next?.length, count, "other words were asked for");
    return Uint32Array.from(next);
  };
}

for (const { reward, depth, reward_values, n, scale, largest, sha256_of_patterns } of vectors.rewards) {
  test(`the table of ${reward}, depth ${depth}, values ${reward_values}`, () => {
    const table = rewardOf(reward, depth, reward_values);
    assert.equal(table.numerators.length, n);
    assert.equal(table.scale, scale);
    assert.equal(table.numerators[n - 1], largest);
    const of = new DataView(new ArrayBuffer(4 * table.index.length));
    table.index.forEach((i, pattern) => of.setUint32(4 * pattern, table.numerators[i], true));
    const digest = createHash("sha256").update(new Uint8Array(of.buffer)).digest("hex");
    assert.equal(digest, sha256_of_patterns);
  });
}

for (const { p, n, threshold: expected, index_word_word_reported } of vectors.responses) {
  test(`randomised response with p = ${p}, n = ${n}`, () => {
    assert.equal(threshold(p, n), expected);
    for (const [index, x, y, reported] of index_word_word_reported) {
      assert.equal(privatise(index, [x, y], p, n), reported);
    }
  });
}

for (const round of vectors.rounds) {
  test(`a round: ${round.name}`, () => {
    const terms = termsOf(round.terms);
    const epsilon = round.epsilon_message ?? Infinity;
    assert.ok(epsilonMessage(terms) === epsilon || Math.abs(epsilonMessage(terms) / epsilon - 1) < 1e-12);
    const model = decodeModel(terms, bytes(round.model));
    assert.equal(model.round, round.round);
    const v = perturbation(round.seed, model.weights.length);
    let trial = { hub: terms.hub, round: model.round, seed: round.seed, sums: [0, 0], done: [0, 0] };
    round.interactions.forEach((search, i) => {
      assert.equal(halfOf(trial), terms.interleaved ? 0 : i % 2);
      assert.ok(!complete(terms, trial));
      const features = search.features.map((row) => Float32Array.from(row));
      const orders = [0, 1].map((half) => ranked(terms, perturbed(terms, model.weights, v, half), features));
      assert.deepEqual(orders, search.orders);
      let team = null;
      if (terms.interleaved) {
        const drafted = draft(...orders, terms.depth, search.toss);
        team = drafted.team;
        assert.deepEqual(drafted.order, search.list);
        assert.deepEqual(credited(search.clicks, team), search.credited);
      }
      const words = terms.mechanism === "randomised-response" ? given(search.words) : given();
      const step = stepOf(terms, { ranking: null, trial, since: 0, pattern: search.clicks, team }, words);
      assert.equal(step.adds[0] + step.adds[1], search.value);
      trial = after(trial, step);
    });
    assert.ok(complete(terms, trial));
    assert.deepEqual(trial.sums, round.sums);
    assert.equal(hex(reportOf(terms, round.seed, trial.sums, round.noise)), round.report);
  });
}

test("the whole table of normal numbers, to the bit", () => {
  // The checksum of "Randomness, down to the bit": 65,536 float32 numbers in little-endian order.
  const table = Float32Array.from({ length: 65536 }, (_, h) => normal(h));
  const digest = createHash("sha256").update(new Uint8Array(table.buffer)).digest("hex");
  assert.equal(digest, "1cfbba1e07e34386a57626f82aeb43e6ed54ba70a3ea6b7d964dc66a841074a8");
});

test("the perturbation of some seeds, to the bit", () => {
  // Of the same page: the first eight numbers of 16 bits, and the bits of the first four coordinates.
  const expected = [
    [0, [33388, 25505, 63135, 50562, 38143, 285, 5921, 56733],
      [1019375689, 3197114899, 1071990479, 1061056072]],
    [1, [15707, 60021, 64443, 10110, 44603, 42153, 59511, 1384],
      [3207926854, 1068521776, 1074278524, 3212990154]],
    [7, [57217, 19350, 54780, 59794, 16642, 63894, 33900, 16067],
      [1066536200, 3205086924, 1064978776, 1068336463]],
    [16909060, [32995, 44864, 6994, 25584, 5370, 22744, 14676, 2550],
      [1007587576, 1056311608, 3214884696, 3197009461]],
    [2147483647, [52729, 34586, 17267, 46091, 787, 38036, 56793, 4841],
      [1062972951, 1032753121, 3206673752, 1057533639]],
    [2147483648, [23673, 54043, 46676, 52998, 23728, 3927, 38735, 18614],
      [3199588763, 1064232285, 1057969597, 1063224016]],
    [4294967295, [50494, 58734, 51922, 1866, 40128, 10748, 63370, 3998],
      [1060998602, 1067536674, 1062238333, 3220416890]],
  ];
  for (const [seed, whole, bits] of expected) {
    assert.deepEqual([...halves(seed, 8)], whole);
    assert.deepEqual([...new Uint32Array(perturbation(seed, 4).buffer)], bits);
    assert.deepEqual([...perturbation(seed, 3)], [...perturbation(seed, 8)].slice(0, 3)); // part of a block
  }
});

test("how many words mean inside the window, to the last word", () => {
  // From the reference device, with 60 decimal digits: w, v, ε, words. The first ones are close to the next word.
  const expected = [
    [2, 1, 0.10233170915341738, 2959260564],
    [1, 64, 0.4529356380729957, 103025033],
    [8, 128, 0.1429007774191771, 288845239],
    [128, 1, 0.9025904653852393, 4281403348],
    [8, 8, 5.1119539935129374, 4269248064],
    [16, 16, 0.062329429714892234, 2214387705],
    [1, 1, 0.001, 2148557389],
    [1, 1, 1.0, 3139872686],
    [1, 1, 16.0, 4294966812],
    [128, 128, 16.0, 4294966812],
    [1, 128, 0.1, 36765939],
    [32, 128, 4.0, 4001786211],
    [2, 4, 0.30000000000000004, 1730699640],
    [64, 1, 2.5, 4289465721],
    [2, 16, 13.559092357258786, 4294922893],
    [64, 1, 4.081849342805008, 4293835050],
    [8, 64, 7.192407545555022, 4269273924],
    [32, 8, 12.619784894817075, 4294963746],
    [1, 8, 0.454531276875579, 706645804],
    [64, 8, 6.924840319412949, 4294439584],
    [64, 64, 0.034694747564419974, 2184733113],
    [8, 4, 11.54491897742018, 4294946497],
  ];
  for (const [w, v, epsilon, words] of expected) assert.equal(share(w, v, epsilon), words, `${w} ${v} ${epsilon}`);
});

test("the scale of Laplace noise is never too small", () => {
  const expected = [
    [2520, 1.5, 1680.0],
    [2520, 0.1, 25200.0],
    [2520, 3.3, 763.6363636363637],
    [2520, 1000.0, 2.52],
    [45436, 0.7, 64908.571428571435],
    [1, 0.3, 3.3333333333333335],
  ];
  for (const [largest, epsilon, scale] of expected) assert.equal(laplaceScale(largest, epsilon), scale);
});
