import type { ReactNode } from 'react';
import { Link } from 'wouter';
import { endpointNameOf } from '../../parts/endpoint-name.ts';
import { Notice } from '../../parts/notice.tsx';
import { When } from '../../parts/when.tsx';
import type { Overview } from '../../types.ts';

type Ailment = Overview['unhealthy'][number];

const describe = (base: string, one: Ailment): { title: string; text: ReactNode; to: string | null; bad: boolean } => {
  switch (one.kind) {
    case 'endpoint_paused':
      return {
        title: `The endpoint ${endpointNameOf(one.url)} is paused`,
        text:
          one.reason === 'gone' ? (
            'It answered 410 Gone. Its events wait until you resume it.'
          ) : (
            <>
              It asked for a pause.{' '}
              {one.until !== null && (
                <>
                  It ends <When at={one.until} />.
                </>
              )}
            </>
          ),
        to: `${base}/webhooks/${one.endpointId}`,
        bad: one.reason === 'gone',
      };
    case 'certificate_expires':
      return {
        title: `The certificate of ${endpointNameOf(one.url)} expires`,
        text: (
          <>
            It expires <When at={one.expiresAt} />. After that, no event is delivered.
          </>
        ),
        to: `${base}/webhooks/${one.endpointId}`,
        bad: false,
      };
    case 'queue_slow':
      return {
        title: one.queue === 'turns' ? 'Visitors wait for replies' : 'Events wait for their delivery',
        text: (
          <>
            The oldest job was added <When at={one.waitingSince} />. Check the workers.
          </>
        ),
        to: null,
        bad: true,
      };
    case 'engine_failing':
      return {
        title: 'The engine or its provider fails',
        text: `${one.failed} of the last ${Math.max(one.failed, one.replies)} replies were not made by it.`,
        to: `${base}/settings`,
        bad: true,
      };
    case 'model_busy':
      return {
        title: 'The language model is too busy',
        text: `${one.byWordsOnly} of the last ${one.replies} replies were found by shared words only. Another reply worker helps.`,
        to: `${base}/knowledge`,
        bad: false,
      };
  }
};

/** What needs attention. Nothing is shown if all is well. */
export const Unhealthy = ({ id, unhealthy }: { id: string; unhealthy: Ailment[] }) => (
  <>
    {unhealthy.map((one, nth) => {
      const { title, text, to, bad } = describe(`/assistants/${id}`, one);
      return (
        <Notice
          key={`${one.kind}-${nth}`}
          tone={bad ? 'bad' : 'warn'}
          title={title}
          actions={to === null ? <a href="/operator/queues">Queues</a> : <Link to={to}>Open</Link>}
        >
          {text}
        </Notice>
      );
    })}
  </>
);
