/**
 * `node test/eval/fit.ts` fits the weights of `confidence.ts` to the tune half: how likely is the best candidate the
 * right answer? Prints them, with the log loss of a ten-fold check, so that anyone can repeat the fit.
 */
import { readFileSync } from 'node:fs';
import { baseLanguage } from '../../src/turns/language/base.ts';
import { decideLanguage } from '../../src/turns/language.ts';
import type { AssistantProfile } from '../../workers/reply/engines/engine.ts';
import { confidenceOf, featuresOf } from '../../workers/reply/engines/retrieval/confidence.ts';
import { buildIndex } from '../../workers/reply/engines/retrieval/knowledge-index.ts';
import { searchGroup } from '../../workers/reply/engines/retrieval/search.ts';

type Sample = { features: number[]; right: 0 | 1 };

const read = (name: string): string => readFileSync(new URL(name, import.meta.url), 'utf8');
const bases = new Map(
  ['shop', 'clinic', 'software'].map((name) => {
    const assistant = JSON.parse(read(`${name}.json`)) as AssistantProfile;
    return [name, { assistant, index: buildIndex(assistant) }];
  }),
);

const samples: Sample[] = [];
for (const line of read('questions.tsv').trimEnd().split('\n').slice(1)) {
  const [base = '', , split, expected, message = ''] = line.split('\t');
  const known = bases.get(base);
  if (split !== 'tune' || !known) continue;
  const language = baseLanguage(decideLanguage({ message, allowed: known.assistant.languages }).language);
  let best: { features: number[]; entryId: string; confidence: number } | null = null;
  const groups = [...known.index.groups].sort(
    (a, b) => Number(b.language === language) - Number(a.language === language),
  );
  for (const group of groups) {
    const { candidates, exact } = searchGroup(message, group, language);
    const [top] = candidates;
    if (!top || exact) continue;
    const confidence = confidenceOf(top.evidence);
    if (best === null || confidence > best.confidence) {
      best = { features: featuresOf(top.evidence), entryId: group.entries[top.entry]?.entryId ?? '', confidence };
    }
  }
  if (best)
    samples.push({ features: best.features, right: best.entryId.replace(/-(de|en)$/, '') === expected ? 1 : 0 });
}

const probability = (weights: number[], features: number[]): number =>
  1 / (1 + Math.exp(-features.reduce((sum, feature, at) => sum + feature * (weights[at] ?? 0), 0)));

const RIDGE = 0.02;
const ROUNDS = 20_000;
const fit = (from: Sample[]): number[] => {
  const weights = Array.from({ length: from[0]?.features.length ?? 0 }, () => 0);
  for (let round = 0; round < ROUNDS; round += 1) {
    const slope = weights.map((weight, at) => (at === 0 ? 0 : (RIDGE * weight) / 10));
    for (const { features, right } of from) {
      const miss = probability(weights, features) - right;
      for (const [at, feature] of features.entries()) slope[at] = (slope[at] ?? 0) + (miss * feature) / from.length;
    }
    for (const at of weights.keys()) weights[at] = (weights[at] ?? 0) - 0.5 * (slope[at] ?? 0);
  }
  return weights;
};
const logLoss = (weights: number[], from: Sample[]): number =>
  -from.reduce((sum, { features, right }) => sum + Math.log(Math.abs(1 - right - probability(weights, features))), 0) /
  from.length;

const FOLDS = 5;
const folds = Array.from({ length: FOLDS }, (_, fold) => {
  const rest = samples.filter((_, at) => at % FOLDS !== fold);
  return logLoss(
    fit(rest),
    samples.filter((_, at) => at % FOLDS === fold),
  );
});
console.log(
  `${samples.length} samples; log loss ${logLoss(fit(samples), samples).toFixed(3)}, unseen ${(folds.reduce((a, b) => a + b) / FOLDS).toFixed(3)}`,
);
console.log(
  fit(samples)
    .map((weight) => weight.toFixed(2))
    .join(', '),
);
