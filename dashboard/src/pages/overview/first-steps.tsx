import { Link } from 'wouter';
import { Icon } from '../../parts/icon.tsx';
import { Section } from '../../parts/page.tsx';
import type { Overview } from '../../types.ts';

/** The steps from an empty assistant to a working one. The list is hidden when all steps are done. */
export const FirstSteps = ({ id, figures }: { id: string; figures: Overview }) => {
  const base = `/assistants/${id}`;
  const steps = [
    {
      done: figures.knowledgeEntries + figures.passages > 0,
      to: `${base}/sources`,
      name: 'Give it knowledge',
      why: 'Add your website or files. Or write questions and answers.',
    },
    {
      done: figures.apiKeys > 0,
      to: `${base}/keys`,
      name: 'Create an API key',
      why: 'Your server sends it with every request.',
    },
    {
      done: figures.endpoints.all > 0,
      to: `${base}/webhooks`,
      name: 'Add an endpoint',
      why: 'Your server gets the events.',
    },
  ];
  if (steps.every(({ done }) => done)) return null;
  return (
    <Section title="Get started" flush>
      <ol className="rows" aria-label="First steps">
        {steps.map(({ done, to, name, why }) => (
          <li key={to}>
            <Link className="row" to={to}>
              <span
                className="check-mark"
                data-tone={done ? 'good' : 'calm'}
                role="img"
                aria-label={done ? 'done' : 'to do'}
              >
                <Icon name={done ? 'check' : 'minus'} size={14} />
              </span>
              <span className="row-main">
                <span className="row-title block">{name}</span>
                <span className="row-sub block">{why}</span>
              </span>
              <Icon name="right" size={16} />
            </Link>
          </li>
        ))}
      </ol>
    </Section>
  );
};
