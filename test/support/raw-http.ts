import { connect } from 'node:net';

export type RawAnswer = { status: number; headers: Headers; body: unknown };

const parse = (bytes: Buffer): RawAnswer => {
  const text = bytes.toString('latin1');
  const end = text.indexOf('\r\n\r\n');
  const [statusLine = '', ...lines] = text.slice(0, end).split('\r\n');
  const headers = new Headers(
    lines.map((line) => [line.slice(0, line.indexOf(':')), line.slice(line.indexOf(':') + 1).trim()]),
  );
  const body = bytes.subarray(end + 4).toString();
  return { status: Number(statusLine.split(' ')[1]), headers, body: body && (JSON.parse(body) as unknown) };
};

/** Sends bytes that no HTTP client would send. Returns the response after the server has closed the connection. */
export const sendRaw = (url: string, bytes: string | Buffer, timeoutMs = 60_000): Promise<RawAnswer> =>
  new Promise((resolve, reject) => {
    const { hostname, port } = new URL(url);
    const received: Buffer[] = [];
    const socket = connect(Number(port), hostname, () => socket.write(bytes));
    socket.setTimeout(timeoutMs, () => socket.destroy(new Error('the server neither answered nor closed')));
    socket.on('data', (chunk: Buffer) => received.push(chunk));
    socket.on('error', (cause) => (received.length > 0 ? undefined : reject(cause)));
    socket.on('close', () => resolve(parse(Buffer.concat(received))));
  });
