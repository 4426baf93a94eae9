/** Reads the metrics of a process. A series is named by its metric and its labels, in the order of their declaration. */
export const readMetrics = async (port: number): Promise<(series: string) => number> => {
  const text = await (await fetch(`http://127.0.0.1:${port}/metrics`)).text();
  const values = new Map(
    text.split('\n').map((line): [string, number] => {
      const end = line.lastIndexOf(' ');
      return [line.slice(0, end), Number(line.slice(end + 1))];
    }),
  );
  return (series) => values.get(series) ?? 0;
};
