import type { alertOperations, overviewOperations } from '../../src/insights/http/overview.ts';
import type { assistantOperations } from '../../src/assistants/http/assistants.ts';
import type { auditOperations, operatorOperations, tokenOperations } from '../../src/operators/http/operators.ts';
import type { cannedReplyOperations, managedTagOperations } from '../../src/inbox/http/settings.ts';
import type { channelOperations, webChannelOperations } from '../../src/assistants/http/channel.ts';
import type { conversationDataOperations, conversationOperations } from '../../src/inbox/http/conversations.ts';
import type { deliveryOperations } from '../../src/events/http/deliveries.ts';
import type { draftOperations } from '../../src/assistants/drafts/http.ts';
import type { endpointOperations, recoveryOperations } from '../../src/events/http/endpoints.ts';
import type { evaluationOperations } from '../../src/evaluation/http/evaluations.ts';
import type { questionSetOperations } from '../../src/evaluation/http/question-sets.ts';
import type { inboxOperations } from '../../src/inbox/http/inbox.ts';
import type { keyOperations } from '../../src/assistants/http/keys.ts';
import type { knowledgeOperations, missOperations } from '../../src/assistants/knowledge/http.ts';
import type { AnswerOf, Operation } from '../../src/operators/operation.ts';
import type { playgroundOperations } from '../../src/turns/http/operator-turns.ts';
import type { sessionOperations } from '../../src/operators/http/session.ts';
import type { queueOperations } from '../../src/alerts/http/queues.ts';
import type { sourceOperations } from '../../src/sources/http.ts';
import type { usageOperations } from '../../src/insights/http/usage.ts';

/** The type of a value after JSON serialisation and parsing: times become strings. */
type Json<Value> = Value extends Date
  ? string
  : Value extends object
    ? { [Name in keyof Value]: Json<Value[Name]> }
    : Value;

/**
 * The API's answers, typed by the schemas that describe them. Only types are imported, so the build contains no server
 * code.
 */
type Answer<One extends Operation> = Json<AnswerOf<One>>;

export type Me = Answer<typeof sessionOperations.me>;
export type LookedFor = Answer<typeof sessionOperations.current>;
export type ReadLink = Answer<typeof sessionOperations.readLink>;
export type Assistants = Answer<typeof assistantOperations.list>;
export type Assistant = Answer<typeof assistantOperations.read>;
export type Engine = Assistant['engine'];
export type Knowledge = Answer<typeof knowledgeOperations.list>;
export type KnowledgeEntry = Knowledge['entries'][number];
export type KnowledgeConflicts = Answer<typeof knowledgeOperations.conflicts>;
export type KnowledgeStatus = Answer<typeof knowledgeOperations.status>;
export type DraftState = Answer<typeof draftOperations.read>;
export type Versions = Answer<typeof draftOperations.versions>;
export type AssistantVersion = Versions['versions'][number];
export type KnowledgeImport = Answer<typeof knowledgeOperations.importFile>;
export type Sources = Answer<typeof sourceOperations.list>;
export type Source = Answer<typeof sourceOperations.read>;
export type SourcePages = Answer<typeof sourceOperations.pages>;
export type SourcePage = SourcePages['pages'][number];
export type Proposals = Answer<typeof sourceOperations.proposals>;
export type Proposal = Proposals['proposals'][number];
export type Decided = Answer<typeof sourceOperations.accept>;
export type Misses = Answer<typeof missOperations.list>;
export type Miss = Misses['misses'][number];
export type QuestionSets = Answer<typeof questionSetOperations.list>;
export type QuestionSetRow = QuestionSets['sets'][number];
export type QuestionSet = Answer<typeof questionSetOperations.read>;
export type QuestionCase = QuestionSet['cases'][number];
export type QuestionImport = Answer<typeof questionSetOperations.import>;
export type Evaluations = Answer<typeof evaluationOperations.list>;
export type Evaluation = Evaluations['evaluations'][number];
export type EvaluationResults = Answer<typeof evaluationOperations.results>;
export type EvaluationResult = EvaluationResults['results'][number];
export type Keys = Answer<typeof keyOperations.list>;
export type ApiKey = Keys['keys'][number];
export type NewApiKey = Answer<typeof keyOperations.create>;
export type Channel = Answer<typeof channelOperations.read>;
export type WebChannel = Answer<typeof webChannelOperations.read>;
export type WebIdentity = Answer<typeof webChannelOperations.rotateIdentity>;
export type ChannelAddress = Answer<typeof channelOperations.rotateAddress>;
export type ChannelCalls = Answer<typeof channelOperations.calls>;
export type Endpoints = Answer<typeof endpointOperations.list>;
export type Endpoint = Answer<typeof endpointOperations.read>;
export type EndpointSecret = Answer<typeof endpointOperations.add>;
export type Deliveries = Answer<typeof deliveryOperations.list>;
export type DeliveryRow = Deliveries['deliveries'][number];
export type Delivery = Answer<typeof deliveryOperations.read>;
export type Recoveries = Answer<typeof recoveryOperations.list>;
export type Recovery = Recoveries['recoveries'][number];
export type RecoveryStart = Answer<typeof recoveryOperations.start>;
export type Outcome = DeliveryRow['outcome'];
export type Started = { deliveryId: string };
export type Reply = NonNullable<Answer<typeof playgroundOperations.turn>>;
export type Inbox = Answer<typeof inboxOperations.list>;
export type WaitingCount = Answer<typeof inboxOperations.waiting>;
export type InboxRow = Inbox['conversations'][number];
export type CannedReplies = Answer<typeof cannedReplyOperations.list>;
export type ManagedTags = Answer<typeof managedTagOperations.list>;
export type ConversationEvents = Answer<typeof conversationDataOperations.events>;
export type Agents = Answer<typeof inboxOperations.agents>;
export type Conversation = Answer<typeof conversationOperations.read>;
export type Queues = Answer<typeof queueOperations.read>;
export type QueueState = Queues['queues'][number];
export type FoundWork = Answer<typeof queueOperations.find>;
export type Work = FoundWork['work'][number];
export type Overview = Answer<typeof overviewOperations.read>;
export type AlertList = Answer<typeof alertOperations.list>;
export type Alert = AlertList['alerts'][number];
export type Usage = Answer<typeof usageOperations.read>;
export type Limits = Answer<typeof usageOperations.limits>;
export type Operators = Answer<typeof operatorOperations.list>;
export type Operator = Operators['operators'][number];
export type OperatorLink = Answer<typeof operatorOperations.invite>;
export type OperatorTokens = Answer<typeof tokenOperations.list>;
export type OperatorToken = OperatorTokens['tokens'][number];
export type NewOperatorToken = Answer<typeof tokenOperations.create>;
export type AuditTrail = Answer<typeof auditOperations.list>;
export type AuditLine = AuditTrail['lines'][number];
