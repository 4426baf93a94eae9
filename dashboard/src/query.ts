import { notifications } from '@mantine/notifications';
import {
  keepPreviousData,
  MutationCache,
  QueryCache,
  QueryClient,
  useMutation,
  useQuery,
  useQueryClient,
} from '@tanstack/react-query';
import { call } from './api.ts';
import { isProblem } from './problem.ts';
import type { LookedFor, Me } from './types.ts';

export const SESSION = '/session';
/** The cache key that is set when a person signs out, so that the end of the session is not reported as unexpected. */
export const LEFT = 'left';
const LOOK_EVERY_MS = 60_000;

/**
 * Creates the client that caches answers of the API. The key of each query is its path. A change lists the paths that
 * it affects.
 */
export const createQueryClient = (): QueryClient => {
  /** A 401 for any request means that the session has ended, so the sign-in is shown. */
  const noticeSignedOut = (failure: Error): void => {
    if (isProblem(failure, 401)) client.setQueryData<Me | null>([SESSION], null);
  };
  const client: QueryClient = new QueryClient({
    queryCache: new QueryCache({ onError: noticeSignedOut }),
    mutationCache: new MutationCache({ onError: noticeSignedOut }),
    defaultOptions: {
      queries: {
        staleTime: 5_000,
        retry: (count, failure) => count < 2 && (!isProblem(failure) || failure.status === 0 || failure.status === 503),
        retryDelay: 800,
      },
    },
  });
  client.setQueryDefaults([LEFT], { gcTime: Number.POSITIVE_INFINITY });
  return client;
};

type Again<Answer> = number | false | ((answer: Answer | undefined) => number | false);
/** `fresh`: for so many milliseconds an answer is not read again. */
type ReadOptions<Answer> = { every?: Again<Answer>; enabled?: boolean; keep?: boolean; fresh?: number };

export const useRead = <Answer>(
  path: string,
  { every = false, enabled = true, keep = false, fresh }: ReadOptions<Answer> = {},
) =>
  useQuery({
    queryKey: [path],
    queryFn: ({ signal }) => call<Answer>('GET', path, { signal }),
    enabled,
    refetchInterval: typeof every === 'function' ? ({ state }) => every(state.data) : every,
    ...(keep && { placeholderData: keepPreviousData }),
    ...(fresh !== undefined && { staleTime: fresh }),
  });

export const useSession = () =>
  useQuery({
    queryKey: [SESSION],
    queryFn: async ({ signal }): Promise<Me | null> =>
      (await call<LookedFor>('GET', `${SESSION}/current`, { signal })).session,
    // The session is polled, so that even an unattended page shows the sign-in when its session has ended.
    refetchInterval: ({ state }) => (state.data ? LOOK_EVERY_MS : false),
    staleTime: 60_000,
  });

const CLOSE = { closeButtonProps: { 'aria-label': 'Close' } };

export const tell = (message: string): void =>
  void notifications.show({ message, color: 'teal', autoClose: 3_000, ...CLOSE });

export const tellProblem = (problem: unknown): void => {
  const message = problem instanceof Error ? problem.message : 'Something went wrong.';
  notifications.show({ title: 'That did not work', message, color: 'red', autoClose: 8_000, ...CLOSE });
};

type Change<Input, Answer> = {
  run: (input: Input) => Promise<Answer>;
  /** Path prefixes of queries that must be reloaded after the change. */
  invalidates?: readonly string[];
  /** The message that is shown after success. */
  done?: string | ((answer: Answer, input: Input) => string);
  /** True if no notification is needed, because a form shows the problem itself. */
  quiet?: boolean;
  after?: (answer: Answer, input: Input) => void;
};

/** A change that a person makes. Notifications show success and failure. */
export const useChange = <Answer, Input = void>({
  run,
  invalidates = [],
  done,
  quiet = false,
  after,
}: Change<Input, Answer>) => {
  const client = useQueryClient();
  return useMutation({
    mutationFn: run,
    onSuccess: async (answer, input) => {
      if (done !== undefined) tell(typeof done === 'string' ? done : done(answer, input));
      after?.(answer, input);
      await client.invalidateQueries({
        predicate: ({ queryKey: [path] }) => invalidates.some((one) => String(path).startsWith(one)),
      });
    },
    onError: (problem) => {
      if (!isProblem(problem, 401) && !(quiet && isProblem(problem))) tellProblem(problem);
    },
  });
};
