import { Button, Loader } from '@mantine/core';
import { useMemo } from 'react';
import type { Address } from '../../../parts/address.ts';
import { Empty, Failure, Loading } from '../../../parts/states.tsx';
import type { Me } from '../../../types.ts';
import { FILTERS, type Name, viewOf } from '../views.ts';
import { RowList } from './list.tsx';
import type { useRows } from './rows.ts';

const FirstUse = ({ me }: { me: Me }) => (
  <Empty icon="inbox" title="No conversations yet">
    A conversation appears here when a visitor writes to{' '}
    {me.assistants.length === 1 ? 'your assistant' : 'an assistant'}, through the chat API or the inbound webhook
    channel. You can answer it once it needs a person. What you write on “Try it” stays there.
  </Empty>
);

const NoRows = ({ address, me }: { address: Address<Name>; me: Me }) => {
  const view = viewOf(address.of('view'));
  if ([...FILTERS, 'search' as const].some((name) => address.of(name) !== ''))
    return (
      <Empty
        icon="search"
        title="No conversation matches"
        action={
          <Button variant="default" size="xs" onClick={address.clear}>
            Clear search and filters
          </Button>
        }
      >
        A search finds conversations that hold all of its words. The last word may be incomplete.
      </Empty>
    );
  if (view.id === 'all') return <FirstUse me={me} />;
  return (
    <Empty
      icon="inbox"
      title={view.empty}
      action={
        <Button variant="default" size="xs" onClick={() => address.set('view', 'all')}>
          Show all conversations
        </Button>
      }
    />
  );
};

const Offline = () => (
  <Empty icon="warning" title="You are offline">
    The conversations are loaded when the connection is back.
  </Empty>
);

type Props = {
  list: ReturnType<typeof useRows>;
  address: Address<Name>;
  me: Me;
  openId: string | null;
  linkTo: (conversationId: string) => string;
  cursor: { id: string } | null;
  onFocus: (conversationId: string) => void;
};

/** The rows, or why there are none. */
export const ListPane = ({ list, address, me, ...rest }: Props) => {
  const {
    rows,
    data,
    error,
    refetch,
    hasNextPage,
    isFetchingNextPage,
    isFetchNextPageError,
    fetchNextPage,
    fetchStatus,
  } = list;
  const more = useMemo(
    () => ({
      has: hasNextPage,
      ready: !isFetchingNextPage && !isFetchNextPageError,
      load: () => void fetchNextPage(),
    }),
    [hasNextPage, isFetchingNextPage, isFetchNextPageError, fetchNextPage],
  );
  if (data === undefined && fetchStatus === 'paused') return <Offline />;
  if (data === undefined)
    return error ? <Failure problem={error} retry={() => void refetch()} /> : <Loading rows={6} height={64} />;
  if (rows.length === 0) return <NoRows address={address} me={me} />;
  return (
    <>
      <RowList rows={rows} me={me} more={more} {...rest} />
      {isFetchNextPageError && (
        <Button variant="subtle" size="compact-sm" className="list-more" onClick={() => void fetchNextPage()}>
          More could not be loaded. Try again
        </Button>
      )}
      {isFetchingNextPage && <Loader type="dots" size="sm" className="list-more" aria-label="Loading more" />}
    </>
  );
};
