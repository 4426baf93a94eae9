import { Parser } from 'htmlparser2';

// What styles and numbering say about a paragraph: whether Word hides it, and which number Word puts before it.

export type XmlAttributes = Record<string, string>;

/** Reads the elements of a part in their order. There is no tree, so no depth overflows a stack. */
export const readElements = (xml: string, onOpen: (name: string, attributes: XmlAttributes) => void): void => {
  const parser = new Parser({ onopentag: onOpen }, { xmlMode: true });
  parser.end(xml);
};

export const isOn = (value: string | undefined): boolean => !/^(?:0|false|off)$/.test(value ?? '');

type Style = { name: string; basedOn: string; isHidden?: boolean; numId?: string; level?: number };

export type Styles = {
  isHidden: (id: string) => boolean;
  isHeading: (id: string) => boolean;
  numberOf: (id: string) => Pick<Style, 'numId' | 'level'>;
};

export const readStyles = (xml: string): Styles => {
  const styles = new Map<string, Style>();
  let style: Style = { name: '', basedOn: '' };
  readElements(xml, (element, { 'w:val': value = '', ...attributes }) => {
    if (element === 'w:style') {
      style = { name: '', basedOn: '' };
      styles.set(attributes['w:styleId'] ?? '', style);
    } else if (element === 'w:name') style.name = value;
    else if (element === 'w:basedOn') style.basedOn = value;
    else if (element === 'w:vanish') style.isHidden = isOn(value);
    else if (element === 'w:numId') style.numId = value;
    else if (element === 'w:ilvl') style.level = Number(value) || 0;
  });
  /** The style, and those that it is based on. */
  const chainOf = (id: string): Style[] => {
    const chain: Style[] = [];
    for (let at = styles.get(id); at && !chain.includes(at) && chain.length < 20; at = styles.get(at.basedOn))
      chain.push(at);
    return chain;
  };
  return {
    isHidden: (id) => chainOf(id).find(({ isHidden }) => isHidden !== undefined)?.isHidden === true,
    isHeading: (id) => /^heading/i.test(styles.get(id)?.name ?? ''),
    numberOf: (id) => {
      const { numId, level } = chainOf(id).find((one) => one.numId !== undefined) ?? {};
      return { ...(numId !== undefined && { numId }), ...(level !== undefined && { level }) };
    },
  };
};

const LEVELS_MAX = 9;

type Level = { start: number; format: string; text: string; isDecimal: boolean; style: string };
type List = Map<number, Level>;
/** An instance of a list. Instances of one list count on, except where they say from which number they start. */
type Instance = { list: string; starts: Map<number, number> };

const ROMAN: [string, number][] = [
  ['m', 1000],
  ['cm', 900],
  ['d', 500],
  ['cd', 400],
  ['c', 100],
  ['xc', 90],
  ['l', 50],
  ['xl', 40],
  ['x', 10],
  ['ix', 9],
  ['v', 5],
  ['iv', 4],
  ['i', 1],
];

const romanOf = (number: number): string => {
  let [rest, text] = [Math.min(number, 4999), ''];
  for (const [letters, value] of ROMAN) for (; rest >= value; rest -= value) text += letters;
  return text;
};

/** a, b, … z, aa, bb: Word repeats the letter. */
const letterOf = (number: number): string =>
  String.fromCodePoint(97 + ((number - 1) % 26)).repeat(Math.min(20, Math.ceil(number / 26)));

const FORMATS: Record<string, (number: number) => string> = {
  lowerLetter: letterOf,
  upperLetter: (number) => letterOf(number).toUpperCase(),
  lowerRoman: romanOf,
  upperRoman: (number) => romanOf(number).toUpperCase(),
  decimalZero: (number) => String(number).padStart(2, '0'),
};

export type Numbered = { style: string; numId?: string; level?: number };

/** The numbers that Word makes. They stand in no text, so they are counted as Word counts them. */
export type Numbering = {
  /** The number of the next paragraph, such as "2.1". Null if it has none, or a bullet. */
  next: (paragraph: Numbered) => string | null;
};

export const readNumbering = (xml: string, styles: Styles): Numbering => {
  const lists = new Map<string, List>();
  const instances = new Map<string, Instance>();
  let list: List = new Map();
  let level: Level | null = null;
  let instance: Instance | null = null;
  let overridden = 0;
  readElements(xml, (element, { 'w:val': value = '', ...attributes }) => {
    const at = Number(attributes['w:ilvl']) || 0;
    if (element === 'w:abstractNum') {
      list = new Map();
      lists.set(attributes['w:abstractNumId'] ?? '', list);
    } else if (element === 'w:num') {
      level = null;
      instance = { list: '', starts: new Map() };
      instances.set(attributes['w:numId'] ?? '', instance);
    } else if (element === 'w:abstractNumId' && instance) instance.list = value;
    else if (element === 'w:lvlOverride') overridden = at;
    else if (element === 'w:startOverride') instance?.starts.set(overridden, Number(value) || 0);
    else if (element === 'w:lvl' && !instance && at < LEVELS_MAX) {
      level = { start: 1, format: 'decimal', text: '', isDecimal: false, style: '' };
      list.set(at, level);
    } else if (level) {
      if (element === 'w:start') level.start = Number(value) || 0;
      else if (element === 'w:numFmt') level.format = value;
      else if (element === 'w:lvlText') level.text = value.slice(0, 100);
      else if (element === 'w:isLgl') level.isDecimal = isOn(value);
      else if (element === 'w:pStyle') level.style = value;
    }
  });

  const counts = new Map<string, number[]>();
  const begun = new Set<string>();
  return {
    next: ({ style, numId, level: given }) => {
      const ofStyle = styles.numberOf(style);
      const id = numId ?? ofStyle.numId;
      const found = id === undefined ? undefined : instances.get(id);
      const levels = found && lists.get(found.list);
      if (!found || !levels) return null;
      const ofList = [...levels].find(([, one]) => one.style !== '' && one.style === style)?.[0];
      const at = given ?? ofStyle.level ?? ofList ?? 0;
      const own = levels.get(at);
      if (!own || own.format === 'bullet' || own.format === 'none' || own.text === '') return null;
      const count = counts.get(found.list) ?? [];
      counts.set(found.list, count);
      const startOf = (nth: number): number => levels.get(nth)?.start ?? 1;
      const key = `${id} ${at}`;
      const restart = begun.has(key) ? undefined : found.starts.get(at);
      begun.add(key);
      for (let nth = 0; nth < at; nth += 1) count[nth] ??= startOf(nth);
      count[at] = restart ?? (count[at] === undefined ? startOf(at) : count[at] + 1);
      count.length = at + 1; // what is deeper begins again
      const shown = (nth: number): string => {
        const format = own.isDecimal ? 'decimal' : (levels.get(nth)?.format ?? 'decimal');
        const number = count[nth] ?? startOf(nth);
        return number > 0 ? (FORMATS[format] ?? String)(number) : String(number);
      };
      return own.text.replace(/%([1-9])/g, (_, nth: string) => shown(Number(nth) - 1)).trim() || null;
    },
  };
};
