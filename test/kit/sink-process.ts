import { type AddressInfo, createServer, type Socket } from 'node:net';
import { type Arrivals, nowMs } from './sink.ts';

// Uses raw sockets, like the load generator, because a web server would use CPU that the measured processes need.

const ANSWER = 'HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok';

let arrivals: Arrivals = [];

const serve = (socket: Socket): void => {
  let received = '';
  socket.setNoDelay(true).on('error', () => undefined);
  socket.on('data', (chunk) => {
    received += chunk.toString('latin1');
    for (;;) {
      const end = received.indexOf('\r\n\r\n');
      if (end === -1) return;
      const head = received.slice(0, end);
      const length = Number(/content-length: *(\d+)/i.exec(head)?.[1] ?? 0);
      if (received.length < end + 4 + length) return;
      received = received.slice(end + 4 + length);
      arrivals.push([/event-id: *([\w-]+)/i.exec(head)?.[1] ?? '', nowMs()]);
      socket.write(ANSWER);
    }
  });
};

const server = createServer(serve).listen(0, '127.0.0.1', () => {
  process.send?.((server.address() as AddressInfo).port);
});
process.on('message', (question) => {
  if (question === 'count') return void process.send?.(arrivals.length);
  process.send?.(arrivals);
  arrivals = [];
});
process.on('disconnect', () => process.exit(0));
