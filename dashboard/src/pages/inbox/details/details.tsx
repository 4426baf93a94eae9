import { ActionIcon, Button, Group } from '@mantine/core';
import { useState } from 'react';
import { Link } from 'wouter';
import { Icon } from '../../../parts/icon.tsx';
import { IconButton } from '../../../parts/icon-button.tsx';
import { learnLink } from '../../../parts/learn-link.ts';
import { Facts } from '../../../parts/page.tsx';
import { dateAndTime, When } from '../../../parts/when.tsx';
import { expectReply, QuestionDialog } from '../../evaluation/question-dialog.tsx';
import { useAgent } from '../agents.ts';
import { Waiting } from '../list/waiting.tsx';
import { useOpenConversation } from '../open-conversation.ts';
import { TagChip } from '../tag.tsx';
import type { Thread } from '../thread/thread.ts';
import { CHANNEL_WORDS, languageWords, reasonWords, STATUS_WORDS } from '../words.ts';
import { OtherEvents } from './events.tsx';
import { Handoffs } from './handoffs.tsx';
import { Notes } from './notes.tsx';
import { Part } from './section.tsx';
import { findLastAnswer } from './teach.ts';
import { WholeConversation } from './whole.tsx';

type Props = { messages: Thread['messages']; onBack: () => void; onErased: () => void };

const Assignee = () => {
  const { facts, me } = useOpenConversation();
  const { assistantId, assigneeId } = facts;
  const agent = useAgent(assistantId, assigneeId);
  if (assigneeId === null) return 'Nobody';
  return assigneeId === me.operatorId ? 'You' : (agent?.email ?? 'An operator');
};

const Lead = ({ score, because }: { score: number; because: readonly string[] }) => (
  <Part title="Lead score">
    <div className="lead">
      <span className="lead-score num">{score}</span>
      <span className="dim">of 100: how likely this visitor is to become a customer</span>
    </div>
    {because.length > 0 && (
      <ul className="lead-because">
        {because.map((one) => (
          <li key={one}>The visitor {one}.</li>
        ))}
      </ul>
    )}
  </Part>
);

/** What an owner can make of an operator's answer. */
const Teach = ({ question, answer }: { question: string; answer: string }) => {
  const { assistantId, conversationId, language } = useOpenConversation().facts;
  const [collecting, setCollecting] = useState(false);
  return (
    <Part title="Knowledge">
      <Group gap="xs">
        <Button
          component={Link}
          to={learnLink(assistantId, { question, answer })}
          variant="default"
          size="xs"
          leftSection={<Icon name="book" size={15} />}
        >
          Teach this answer
        </Button>
        <Button variant="default" size="xs" onClick={() => setCollecting(true)}>
          Add to a question set
        </Button>
      </Group>
      {collecting && (
        <QuestionDialog
          id={assistantId}
          draft={{ question, language, expected: expectReply(answer), from: { conversationId } }}
          onClose={() => setCollecting(false)}
        />
      )}
    </Part>
  );
};

/** Everything about a conversation but its messages. */
export const ConversationDetails = ({ messages, onBack, onErased }: Props) => {
  const { facts, me, actions, act } = useOpenConversation();
  const { tags, attributes } = facts;
  const assistant = me.assistants.find(({ assistantId }) => assistantId === facts.assistantId);
  const answered = me.role === 'owner' ? findLastAnswer(messages) : null;
  return (
    <div className="details">
      <div className="details-head not-wide">
        <IconButton label="Back to the messages" icon="left" onClick={onBack} />
        <h2>Details</h2>
      </div>
      <Part title="Conversation">
        <Facts
          facts={{
            Status: STATUS_WORDS[facts.status],
            ...(facts.escalationReason !== null && { Reason: reasonWords(facts.escalationReason) }),
            ...(facts.waitingSince !== null && { Visitor: <Waiting since={facts.waitingSince} /> }),
            ...(facts.takeBy !== null && { 'Take by': dateAndTime(facts.takeBy) }),
            ...(facts.remindedAt !== null && { 'Not taken': <When at={facts.remindedAt} /> }),
            Assignee: <Assignee />,
            ...(facts.snoozedUntil !== null && { Snoozed: `until ${dateAndTime(facts.snoozedUntil)}` }),
            Assistant: assistant?.name ?? '',
            Session: <span className="break">{facts.sessionId}</span>,
            Channel: CHANNEL_WORDS[facts.channel] ?? facts.channel,
            Language: languageWords(facts.language),
            Started: <When at={facts.createdAt} />,
          }}
        />
      </Part>
      <Part title="Tags">
        {tags.length === 0 && <span className="dim">No tags</span>}
        <ul className="offered" aria-label="Tags">
          {tags.map((one) => (
            <li key={one.tag}>
              <TagChip {...one}>
                <ActionIcon
                  variant="transparent"
                  color="gray"
                  size="xs"
                  aria-label={`Remove tag ${one.tag}`}
                  onClick={() => act(actions.removeTag(one.tag))}
                >
                  <Icon name="cross" size={13} />
                </ActionIcon>
              </TagChip>
            </li>
          ))}
        </ul>
      </Part>
      <Lead score={facts.leadScore} because={facts.leadBecause} />
      {Object.keys(attributes).length > 0 && (
        <Part title="Attributes">
          <Facts facts={Object.fromEntries(Object.entries(attributes).map(([name, value]) => [name, String(value)]))} />
        </Part>
      )}
      <Notes />
      <Handoffs messages={messages} />
      {answered && <Teach {...answered} />}
      <OtherEvents facts={facts} />
      <WholeConversation onErased={onErased} />
    </div>
  );
};
