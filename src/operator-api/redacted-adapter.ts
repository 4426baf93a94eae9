import { BullMQAdapter } from '@bull-board/api/bullMQAdapter';

type Failure = { failedReason?: string; stacktrace?: unknown };
type Shown = { toJSON: () => Failure };

const FRAME = /^\s+at (?:.+ \()?(?:file|node):[^()\s]+:\d+:\d+\)?$/;
const NAME = /^[A-Z]\w{0,60}(?=[:\s]|$)/;
/** Matches a message that BullMQ itself writes. This message contains no data of a job, so it may be shown. */
const OWN_WORDS = /^job stalled more than allowable limit/;

/**
 * The error's name and stack frames. The message is left out, because it may quote anything; it can be read in the
 * worker's log.
 */
const withoutMessage = (stack: unknown, message: string): string => {
  const text = String(stack);
  const from = message === '' ? -1 : text.indexOf(message);
  const frames =
    from === -1
      ? []
      : text
          .slice(from + message.length)
          .split('\n')
          .filter((line) => FRAME.test(line));
  return [NAME.exec(text)?.[0] ?? 'Error', ...frames].join('\n');
};

const redact = <Job extends Shown>(job: Job): Job => {
  const whole = job.toJSON.bind(job);
  job.toJSON = () => {
    const { failedReason, stacktrace, ...rest } = whole();
    const traces = Array.isArray(stacktrace) ? stacktrace.filter(Boolean) : [];
    const stacks = traces.map((stack) => withoutMessage(stack, failedReason ?? ''));
    if (!failedReason) return { ...rest, stacktrace: stacks };
    const name = stacks.at(-1)?.split('\n')[0] ?? 'Error';
    const reason = OWN_WORDS.test(failedReason) ? failedReason : `${name}: the message is in the worker’s log`;
    return { ...rest, failedReason: reason, stacktrace: stacks };
  };
  return job;
};

/**
 * Shows the kind of a failed job's error and the place where it was thrown. Hides the error's message, which could
 * contain a visitor's text or a secret.
 */
export class RedactedAdapter extends BullMQAdapter {
  override async getJob(id: string) {
    const job = await super.getJob(id);
    return job && redact(job);
  }

  override async getJobs(...args: Parameters<BullMQAdapter['getJobs']>) {
    return (await super.getJobs(...args)).map(redact);
  }

  override getJobLogs(): Promise<string[]> {
    return Promise.resolve([]);
  }
}
