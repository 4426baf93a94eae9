import { Link } from 'wouter';
import { at } from '../../api.ts';
import { Code } from '../code.tsx';
import { Facts } from '../page.tsx';
import { SESSION, useRead } from '../../query.ts';
import type { Conversation, Knowledge, Me } from '../../types.ts';

export type Reason = Record<string, unknown>;
type ReplySources = Conversation['messages'][number]['sources'];

const KINDS: Record<string, string> = {
  answer: 'A knowledge entry',
  greeting: 'A greeting',
  thanks: 'Thanks',
  goodbye: 'A goodbye',
  unsure: 'Not sure enough to answer',
  hedge: 'A knowledge entry that may be the answer, with others to choose from',
  askBack: 'Not sure which entry matches, so it asked back',
  noKnowledge: 'It has no entries yet',
  whoAmI: 'Asked what it is',
  human: 'Asked for a person',
  contact: 'Contact details were given',
  refused: 'Refused as prompt injection',
};

/** The kinds of a reply that is taken from a source. */
const FROM_SOURCE: Record<string, string> = {
  answer: 'A quote from a source',
  hedge: 'A quote that may be the answer, with others to choose from',
};

const BECAUSE: Record<string, string> = {
  'unknown source': 'cites a source that it was not given',
  number: 'has a number that stands in no entry or source',
  name: 'has a name that stands in no entry or source',
  address: 'has an address that stands in no entry or source',
  uncited: 'cites none of the sources that it was given',
};

const FOUND_BY: Record<string, string> = {
  wording: 'by its exact words',
  words: 'by shared words',
  'words only': 'by shared words only: the language model was too busy or not there',
  both: 'by shared words and meaning',
};

const LANGUAGE_BY: Record<string, string> = {
  given: 'set by the caller',
  script: 'from its script',
  lexicon: 'from its words',
  detector: 'detected',
  previous: 'as in the message before',
  default: 'the default',
};

const textOf = (value: unknown): string => (typeof value === 'string' ? value : '');
const numberOf = (value: unknown): number | null => (typeof value === 'number' ? value : null);

type Hit = { entryId: string; score: number; words: number | null; meaning: number | null };

const hitsOf = ({ hits }: Reason): Hit[] =>
  Array.isArray(hits)
    ? hits.flatMap((hit: Partial<Hit>) =>
        typeof hit.entryId === 'string'
          ? [
              {
                entryId: hit.entryId,
                score: numberOf(hit.score) ?? 0,
                words: numberOf(hit.words),
                meaning: numberOf(hit.meaning),
              },
            ]
          : [],
      )
    : [];

/** The confidence of what decided: the passage that is given, or else the likeliest of all that were found. */
const confidenceOf = (why: Reason): number | null => {
  const { given } = why as { given?: { passageId?: unknown } };
  const passages = (Array.isArray(why.passages) ? why.passages : []) as { passageId?: unknown; score?: unknown }[];
  const scores = (given ? passages.filter(({ passageId }) => passageId === given.passageId) : passages).map(
    ({ score }) => numberOf(score) ?? 0,
  );
  const entries = given ? [] : hitsOf(why).map(({ score }) => score);
  return scores.length + entries.length === 0 ? null : Math.max(...scores, ...entries);
};

const confidenceWords = (why: Reason): string | null => {
  const [confidence, threshold] = [confidenceOf(why), numberOf(why.threshold)];
  if (confidence === null) return null;
  return `${confidence.toFixed(2)}${threshold === null ? '' : `, sure from ${threshold.toFixed(2)} on`}`;
};

/** The evidence for an entry, in words. */
const evidenceOf = ({ words, meaning }: Hit): string | null => {
  if (words === null || meaning === null) return null;
  const said = words === 0 ? 'no shared words' : `shared words ${words.toFixed(2)}`;
  return meaning === 0 ? `${said}; vector not made yet` : `${said}; meaning ${meaning.toFixed(2)}`;
};

const Hits = ({ id, why }: { id: string; why: Reason }) => {
  const me = useRead<Me>(SESSION, { enabled: false });
  const isOwner = me.data?.role === 'owner';
  const knowledge = useRead<Knowledge>(at`/assistants/${id}/knowledge`, { enabled: isOwner });
  const threshold = numberOf(why.threshold);
  return (
    <ul className="hits">
      {hitsOf(why).map((hit) => {
        const { entryId, score } = hit;
        const evidence = evidenceOf(hit);
        const entry = knowledge.data?.entries.find((one) => one.entryId === entryId);
        return (
          <li key={entryId}>
            <svg viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">
              <rect width="100" height="8" rx="2" className="hit-back" />
              <rect width={Math.max(score * 100, 1)} height="8" rx="2" className="hit-bar" />
              {threshold !== null && <rect x={threshold * 100} width="1" height="8" className="hit-line" />}
            </svg>
            <span className="num">{score.toFixed(2)}</span>
            {entry ? (
              <Link className="link break" to={`/assistants/${id}/knowledge?entry=${entryId}`}>
                {entry.question}
              </Link>
            ) : (
              <span className="mono dim break">{entryId}</span>
            )}
            {evidence !== null && <span className="dim hit-evidence">{evidence}</span>}
          </li>
        );
      })}
    </ul>
  );
};

/** What a reply is taken from: pages to open, and files. */
const Sources = ({ sources }: { sources: NonNullable<ReplySources> }) => (
  <ul className="sources">
    {sources.map(({ title, url, quote }) => (
      <li key={`${url} ${quote}`}>
        {url === null ? (
          <span className="break">{title}</span>
        ) : (
          <a className="link break" href={url} target="_blank" rel="noreferrer">
            {title === '' ? url : title}
          </a>
        )}
        <blockquote className="dim break">{quote}</blockquote>
      </li>
    ))}
  </ul>
);

/** What a language model wrote without having been given it. Sentence 0 is the whole reply. */
const flagsOf = ({ flagged }: Reason): string[] =>
  Array.isArray(flagged)
    ? flagged.map(({ sentence, because }: { sentence: number; because: string }) => {
        const what = BECAUSE[because] ?? because;
        return sentence === 0 ? `It ${what}` : `Sentence ${sentence} ${what}`;
      })
    : [];

const factsOf = (id: string, why: Reason, sources: ReplySources) => {
  const stages = typeof why.stages === 'object' && why.stages !== null ? (why.stages as Record<string, unknown>) : {};
  const times = Object.entries(stages).flatMap(([name, ms]) =>
    typeof ms === 'number' ? [`${name}\u00a0${Math.round(ms)}\u00a0ms`] : [],
  );
  const engine = textOf(why.engine);
  const kind = textOf(why.kind);
  return {
    ...(kind !== '' && { Reply: (why.given === undefined ? KINDS : FROM_SOURCE)[kind] ?? kind }),
    ...(confidenceWords(why) !== null && { Confidence: confidenceWords(why) }),
    ...(sources && sources.length > 0 && { 'Taken from': <Sources sources={sources} /> }),
    ...(flagsOf(why).length > 0 && {
      [why.strict === true ? 'The model’s reply was not sent' : 'Flagged']: `${flagsOf(why).join('. ')}.`,
    }),
    Engine: why.model === undefined ? engine : `${engine}, ${textOf(why.model)}`,
    Language: `${textOf(why.language)}${why.languageBy === undefined ? '' : ` (${LANGUAGE_BY[textOf(why.languageBy)] ?? textOf(why.languageBy)})`}`,
    ...(FOUND_BY[textOf(why.by)] !== undefined && { Found: FOUND_BY[textOf(why.by)] }),
    ...(hitsOf(why).length > 0 && { 'Entries found': <Hits id={id} why={why} /> }),
    ...(why.fallBack !== undefined && {
      'The provider failed': <Code text={JSON.stringify(why.fallBack)} label="failure" />,
    }),
    ...(why.guard !== undefined && { Guard: <Code text={JSON.stringify(why.guard)} label="guard" /> }),
    ...(times.length > 0 && { Time: times.join(', ') }),
  };
};

type WhyProps = { assistantId: string; why: Reason; sources: ReplySources };

/** How a reply was chosen, for operators. Links to entries are for owners. */
export const WhyFacts = ({ assistantId, why, sources }: WhyProps) => (
  <Facts facts={factsOf(assistantId, why, sources)} />
);
