import { Lexer, type Token, type Tokens } from 'marked';
import { invalid } from '../../platform/errors.ts';
import { countLineEnds, type Row } from './row.ts';

// Tokens are cast by their `type`: marked's union leaves room for extensions' own, and none is installed.
type Section = { line: number; level: number; question: string; blocks: Token[] };

/** What a reader sees: a chat reply is plain text, so marks go and a link shows its address. */
const inline = (tokens: Token[] = []): string =>
  tokens
    .map((token): string => {
      if (token.type === 'br') return '\n';
      if (token.type === 'html') return '';
      if (token.type === 'link') {
        const { href, tokens: label } = token as Tokens.Link;
        const text = inline(label);
        return text === href || `mailto:${text}` === href ? text : `${text} (${href})`;
      }
      if ('tokens' in token && token.tokens) return inline(token.tokens);
      return 'text' in token && typeof token.text === 'string' ? token.text : '';
    })
    .join('');

const list = ({ items, ordered, start }: Tokens.List): string =>
  items
    .map((item, index) => {
      const mark = ordered ? `${(start || 1) + index}.` : '-';
      return `${mark} ${blocks(item.tokens).replaceAll('\n\n', '\n').replaceAll('\n', '\n  ')}`;
    })
    .join('\n');

const table = ({ header, rows }: Tokens.Table): string =>
  [header, ...rows].map((row) => row.map((cell) => inline(cell.tokens)).join(' | ')).join('\n');

const block = (token: Token): string => {
  switch (token.type) {
    case 'list':
      return list(token as Tokens.List);
    case 'table':
      return table(token as Tokens.Table);
    case 'blockquote':
      return blocks((token as Tokens.Blockquote).tokens);
    case 'code':
      return (token as Tokens.Code).text;
    case 'paragraph':
    case 'text':
      return inline([token]);
    default:
      return ''; // space, rules, HTML, definitions
  }
};

const blocks = (tokens: Token[]): string =>
  tokens
    .map(block)
    .filter((text) => text.trim() !== '')
    .join('\n\n')
    .trim();

const sectionsOf = (text: string): Section[] => {
  const sections: Section[] = [];
  let line = 1;
  for (const token of new Lexer().lex(text)) {
    if (token.type === 'heading') {
      const { depth, tokens } = token as Tokens.Heading;
      sections.push({ line, level: depth, question: inline(tokens).trim(), blocks: [] });
    } else sections.at(-1)?.blocks.push(token);
    line += countLineEnds(token.raw);
  }
  return sections;
};

/** The document's title: first, and above every other heading. */
const isTitle = (section: Section, index: number, all: Section[]): boolean =>
  index === 0 && all.length > 1 && all.slice(1).every(({ level }) => level > section.level);

/**
 * Every heading with text under it is a question, and the text its answer. The document's title, with what introduces it,
 * and chapters (no text of their own, a deeper heading next) are none.
 */
export const readMarkdown = (text: string): Row[] => {
  const sections = sectionsOf(text);
  if (sections.length === 0) throw invalid('file', 'invalid', 'has no heading: each question needs one');
  return sections.flatMap((section, index, all): Row[] => {
    const answer = blocks(section.blocks);
    const { line, level, question } = section;
    if (isTitle(section, index, all)) return [];
    if (answer !== '') return [{ line, fields: { question, answer } }];
    const isChapter = (all[index + 1]?.level ?? 0) > level;
    return isChapter ? [] : [{ line, reason: 'has no answer under it' }];
  });
};
