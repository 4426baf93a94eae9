import { invalid } from '../../platform/errors.ts';
import { type Block, readBlocks } from './markdown-text.ts';
import type { Row } from './row.ts';

type Section = { line: number; level: number; question: string; blocks: Block[] };

/** True for the document's title: the first heading, if other headings follow and all of these are deeper. */
const isTitle = (section: Section, index: number, all: Section[]): boolean =>
  index === 0 && all.length > 1 && all.slice(1).every(({ level }) => level > section.level);

/**
 * Every heading with text under it is a question, and the text is its answer. Two headings are not questions: the
 * document's title (its introduction is skipped too), and a chapter heading, which has no text of its own and is
 * followed by a deeper heading.
 */
export const readMarkdown = (text: string): Row[] => {
  const { top, blocks, inline } = readBlocks(text);
  const sections: Section[] = [];
  for (const block of top) {
    const { type, tag, map } = block.token;
    if (type !== 'heading_open') sections.at(-1)?.blocks.push(block);
    else {
      const level = Number(tag.slice('h'.length));
      sections.push({ line: (map?.[0] ?? 0) + 1, level, question: inline(block).trim(), blocks: [] });
    }
  }
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
