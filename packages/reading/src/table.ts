import type { Attributes } from './region.ts';

const MAX_COLUMNS = 50;
const MAX_ROWS_REACHED = 1000;
/** A table with a larger cell than this only arranges the page. */
const MAX_CELL_CHARS = 800;
const MAX_CELL_BLOCKS = 8;

const countOf = (attribute: string | undefined, most: number): number =>
  Math.min(most, Math.max(1, Math.trunc(Number(attribute)) || 1));

type Cell = { text: string; isHeader: boolean };

/** A row as a line of its own, because a passage may have some rows only: "Day: Monday; Open: 9 to 5". */
const writeRow = (row: readonly Cell[], headers: readonly string[]): string => {
  const filled = row
    .map(({ text }, column) => ({ text, header: headers[column] ?? '' }))
    .filter(({ text }) => text !== '');
  if (headers.length > 0)
    return filled
      .map(({ text, header }) => (header === '' || header === text ? text : `${header}: ${text}`))
      .join('; ');
  const texts = filled.map(({ text }) => text);
  if (texts.length > 1 && (row[0]?.isHeader || texts.length === 2)) return `${texts[0]}: ${texts.slice(1).join('; ')}`;
  return texts.join(' | ');
};

/** A table that is being read, row by row. */
export class Table {
  private isLayout: boolean;
  private headers: string[] = [];
  private row: Cell[] = [];
  private hasRows = false;
  /** The blocks of the cell that is open, and their characters. */
  private cell: string[] | null = null;
  private cellChars = 0;
  private isBold = false;
  /** Cells that reach down into the next rows, by column. */
  private readonly reaching = new Map<number, { text: string; rows: number }>();

  /** A layout only arranges blocks on the page, so these are read as if there was no table. */
  constructor(isLayout: boolean) {
    this.isLayout = isLayout;
  }

  get isInCell(): boolean {
    return this.cell !== null;
  }

  /** Begins a cell. Returns the function that ends it, or null if the table is a layout. */
  openCell(isTh: boolean, { colspan, rowspan }: Attributes): (() => void) | null {
    if (this.isLayout) return null;
    const cell: string[] = [];
    this.cell = cell;
    this.cellChars = 0;
    this.isBold = false;
    return () => {
      if (this.cell !== cell) return;
      this.cell = null;
      this.endCell(cell.join(' '), isTh, countOf(colspan, MAX_COLUMNS), countOf(rowspan, MAX_ROWS_REACHED));
    };
  }

  /** Notes that the open cell begins with bold letters: many tables have no `th`, but a bold first row. */
  noteBold(): void {
    if (this.cell?.length === 0) this.isBold = true;
  }

  /** Adds a block to the open cell. Returns false if the cell is too large for a table of data. */
  add(text: string): boolean {
    this.cell?.push(text);
    this.cellChars += text.length;
    return this.cellChars <= MAX_CELL_CHARS && (this.cell?.length ?? 0) <= MAX_CELL_BLOCKS;
  }

  /** From now on the table only arranges blocks. Returns the texts that were gathered of the open row. */
  becomeLayout(): string[] {
    if (this.isLayout) return [];
    this.isLayout = true;
    const gathered = [...this.row.map(({ text }) => text), ...(this.cell ?? [])];
    this.row = [];
    this.cell = null;
    return gathered;
  }

  /** Ends the row. Returns it as a line, or an empty text if there is no row or the row names the columns. */
  endRow(): string {
    if (this.row.length === 0) return '';
    this.fillReaching();
    const { row, hasRows } = this;
    this.row = [];
    this.hasRows = true;
    const isHeaders = !hasRows && row.length > 1 && row.every(({ isHeader, text }) => isHeader || text === '');
    if (!isHeaders) return writeRow(row, this.headers);
    this.headers = row.map(({ text }) => text);
    return '';
  }

  private endCell(text: string, isTh: boolean, columns: number, rows: number): void {
    this.fillReaching();
    const isHeader = isTh || (this.isBold && !this.hasRows);
    for (let column = 0; column < columns && this.row.length < MAX_COLUMNS; column += 1) {
      if (rows > 1) this.reaching.set(this.row.length, { text, rows: rows - 1 });
      this.row.push({ text: column === 0 || isHeader ? text : '', isHeader });
    }
  }

  private fillReaching(): void {
    while (this.row.length < MAX_COLUMNS) {
      const column = this.row.length;
      const reaching = this.reaching.get(column);
      if (!reaching) return;
      reaching.rows -= 1;
      if (reaching.rows === 0) this.reaching.delete(column);
      this.row.push({ text: reaching.text, isHeader: false });
    }
  }
}
