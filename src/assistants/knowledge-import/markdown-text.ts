import MarkdownIt, { type Token } from 'markdown-it';

/** A Markdown token with the blocks inside it. */
export type Block = { token: Token; inside: Block[] };

// markdown-it takes linear time on hostile text and limits nesting to 100. The library `marked` does neither.
const markdown = new MarkdownIt({ html: true });
// Keeps link addresses exactly as written.
markdown.normalizeLink = (address) => address;
markdown.normalizeLinkText = (address) => address;
markdown.validateLink = () => true;
// Only blocks are parsed here. Inline content is parsed when it is written out.
markdown.core.ruler.enableOnly(['normalize', 'block']);

const nest = (tokens: Token[]): Block[] => {
  const root: Block[] = [];
  const open = [root];
  for (const token of tokens) {
    if (token.nesting === -1) {
      open.pop();
      continue;
    }
    const block: Block = { token, inside: [] };
    open.at(-1)?.push(block);
    if (token.nesting === 1) open.push(block.inside);
  }
  return root;
};

/**
 * Converts blocks to plain text, because a chat reply is plain text: markup is removed, and a link shows its address.
 */
const createWriter = (references: Record<string, unknown>) => {
  const line = (content: string): string => {
    const tokens: Token[] = [];
    markdown.inline.parse(content, markdown, references, tokens);
    let text = '';
    let link = { from: 0, address: '' };
    for (const token of tokens) {
      if (token.type === 'softbreak' || token.type === 'hardbreak') text += '\n';
      else if (token.type === 'link_open') link = { from: text.length, address: String(token.attrGet('href') ?? '') };
      else if (token.type === 'link_close') {
        const label = text.slice(link.from);
        if (label !== link.address && `mailto:${label}` !== link.address) text += ` (${link.address})`;
      } else if (token.type !== 'html_inline') text += token.content;
    }
    return text;
  };

  const inline = ({ inside }: Block): string => inside.map(({ token }) => line(token.content)).join('');

  const list = ({ token, inside }: Block): string =>
    inside
      .map((item, index) => {
        const mark = token.type === 'ordered_list_open' ? `${(Number(token.attrGet('start')) || 1) + index}.` : '-';
        return `${mark} ${blocks(item.inside).replaceAll('\n\n', '\n').replaceAll('\n', '\n  ')}`;
      })
      .join('\n');

  const table = ({ inside }: Block): string =>
    inside
      .flatMap((part) => part.inside)
      .map((row) => row.inside.map(inline).join(' | '))
      .join('\n');

  const block = (one: Block): string => {
    switch (one.token.type) {
      case 'bullet_list_open':
      case 'ordered_list_open':
        return list(one);
      case 'table_open':
        return table(one);
      case 'blockquote_open':
        return blocks(one.inside);
      case 'fence':
      case 'code_block':
        return one.token.content.replace(/\n$/, '');
      case 'paragraph_open':
        return inline(one);
      default:
        return ''; // rules, HTML
    }
  };

  const blocks = (all: Block[]): string =>
    all
      .map(block)
      .filter((text) => text.trim() !== '')
      .join('\n\n')
      .trim();

  return { blocks, inline };
};

export const readBlocks = (text: string) => {
  const references = {};
  return { top: nest(markdown.parse(text, references)), ...createWriter(references) };
};
