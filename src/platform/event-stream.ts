/** The headers of a response that consists of server-sent events. */
export const EVENT_STREAM_HEADERS = {
  'Content-Type': 'text/event-stream; charset=utf-8',
  'Cache-Control': 'no-cache, no-transform',
  // Without this header, nginx and similar proxies buffer the events until the response ends.
  'X-Accel-Buffering': 'no',
};
