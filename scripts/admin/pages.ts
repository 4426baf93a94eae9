type Page<Row> = { rows: Row[]; nextCursor: string | null };

/** Reads pages until there are `limit` rows or no more pages. */
export const readPages = async <Row>(
  limit: number,
  pageMax: number,
  read: (page: { limit: number; cursor: string | undefined }) => Promise<Page<Row>>,
): Promise<Row[]> => {
  const rows: Row[] = [];
  let cursor: string | null = null;
  do {
    const size = Math.min(pageMax, limit - rows.length);
    const page: Page<Row> = await read({ limit: size, cursor: cursor ?? undefined });
    rows.push(...page.rows);
    cursor = page.nextCursor;
  } while (cursor !== null && rows.length < limit);
  return rows;
};
