/** Text that is already HTML. Any other value is escaped when it is inserted. */
export class Html {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

type Part = Html | string | number | null | undefined | false | Part[];

const ESCAPES: Record<string, string> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' };
const escaped = (text: string): string => text.replace(/[&<>"]/g, (one) => ESCAPES[one] ?? one);

const textOf = (part: Part): string => {
  if (part instanceof Html) return part.text;
  if (Array.isArray(part)) return part.map(textOf).join('');
  return part === null || part === undefined || part === false ? '' : escaped(String(part));
};

export const html = (strings: TemplateStringsArray, ...parts: Part[]): Html =>
  new Html(strings.map((text, index) => text + textOf(parts[index])).join(''));

/** Renders the Markdown in the document's texts. These texts contain no markup except `code`. */
export const inline = (text: string): Html =>
  new Html(
    text
      .split('`')
      .map((part, index) => (index % 2 === 1 ? `<code>${escaped(part)}</code>` : escaped(part)))
      .join(''),
  );

/** Renders paragraphs, which are separated by blank lines. */
export const prose = (text: string | undefined): Html =>
  html`${(text ?? '')
    .split(/\n{2,}/)
    .filter((one) => one.trim() !== '')
    .map((one) => html`<p>${inline(one)}</p>`)}`;
