import type { ReactNode } from 'react';
import { Link } from 'wouter';
import { When } from '../../parts/when.tsx';
import type { Miss } from '../../types.ts';

/** A group of questions with the same meaning, its examples and the answer that a person gave. */
export const MissRow = ({ miss, children }: { miss: Miss; children: ReactNode }) => (
  <li className="miss">
    <div className="miss-head">
      <div className="grow">
        <div className="row-title">{miss.question}</div>
        <div className="dim">
          asked <span className="num">{miss.count}</span> {miss.count === 1 ? 'time' : 'times'}, last{' '}
          <When at={miss.lastAt} />
        </div>
      </div>
      {children}
    </div>
    {miss.answer && (
      <blockquote className="miss-answer">
        <span className="dim">An operator wrote </span>
        <Link to={`/inbox/${miss.answer.conversationId}`}>in a conversation</Link>
        <span className="dim">:</span> {miss.answer.content}
      </blockquote>
    )}
    <details className="numbers">
      <summary>
        {miss.examples.length === 1 ? 'The latest example' : `The latest ${miss.examples.length} examples`}
      </summary>
      <ul className="miss-examples">
        {miss.examples.map(({ conversationId, question, at }) => (
          <li key={`${conversationId} ${at}`}>
            <Link to={`/inbox/${conversationId}`}>{question}</Link>{' '}
            <span className="dim nowrap">
              <When at={at} />
            </span>
          </li>
        ))}
      </ul>
    </details>
  </li>
);
