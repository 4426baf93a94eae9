import { Button, Stack, TextInput } from '@mantine/core';
import { Link } from 'wouter';
import { at, call } from '../../api.ts';
import { useConfirm } from '../../parts/confirm.tsx';
import { FormProblem, onSubmit, useFields } from '../../parts/form.tsx';
import { Page, Section } from '../../parts/page.tsx';
import { Empty, Shown } from '../../parts/states.tsx';
import { Status, type Tone } from '../../parts/status.tsx';
import { When } from '../../parts/when.tsx';
import { useChange, useRead } from '../../query.ts';
import type { Assistant, AssistantVersion, DraftState, Versions } from '../../types.ts';
import { changeWords, DraftActions, settingWords, useDraft } from './draft.tsx';

type Shown = NonNullable<DraftState['draft']>;

const KINDS: Record<Shown['entries'][number]['kind'], { label: string; tone: Tone }> = {
  added: { label: 'Added', tone: 'good' },
  changed: { label: 'Changed', tone: 'busy' },
  removed: { label: 'Removed', tone: 'bad' },
};

const Change = ({
  what,
  kind,
  by,
  at: changedAt,
}: {
  what: React.ReactNode;
  kind: keyof typeof KINDS;
  by: string | null;
  at: string;
}) => (
  <li className="row row-stack">
    <div className="row-main">
      <div className="row-title break">{what}</div>
      <div className="row-sub">
        {by ?? 'The service'}, <When at={changedAt} />
      </div>
    </div>
    <Status tone={KINDS[kind].tone}>{KINDS[kind].label}</Status>
  </li>
);

const Changes = ({ id, draft: { settings, sources, entries, counts } }: { id: string; draft: Shown }) => (
  <ul className="rows" aria-label="Changes of the draft">
    {settings.map(({ field, by, at: changedAt }) => (
      <Change
        key={field}
        kind="changed"
        by={by.name}
        at={changedAt}
        what={<Link to={`/assistants/${id}/settings`}>{settingWords(field)}</Link>}
      />
    ))}
    {sources.map(({ sourceId, kind, name, by, at: changedAt }) => (
      <Change
        key={sourceId}
        kind={kind}
        by={by.name}
        at={changedAt}
        what={
          <>
            Source <Link to={`/assistants/${id}/sources/${sourceId}`}>{name}</Link>
          </>
        }
      />
    ))}
    {entries.map(({ entryId, kind, question, by, at: changedAt }) => (
      <Change
        key={entryId}
        kind={kind}
        by={by.name}
        at={changedAt}
        what={
          kind === 'removed' ? question : <Link to={`/assistants/${id}/knowledge?entry=${entryId}`}>{question}</Link>
        }
      />
    ))}
    {counts.added + counts.changed + counts.removed > entries.length && (
      <li className="row dim">The newest {entries.length} changed entries are shown.</li>
    )}
  </ul>
);

const nameOfResult = ({ set }: NonNullable<AssistantVersion['result']>): string => set ?? 'Questions of visitors';

/** By the expected answers, or what the comparison found without them. */
const resultWords = ({ set, counts, judged }: NonNullable<AssistantVersion['result']>): string =>
  set === null
    ? `${counts.worse} worse, ${counts.better} better, ${counts.other} other`
    : `${judged.right} right, ${judged.hedged + judged.offered} offered, ${judged.wrong} wrong`;

const GuardRail = ({ id }: { id: string }) => {
  const path = at`/assistants/${id}`;
  const read = useRead<Assistant>(path);
  return <Shown read={read}>{(assistant) => <GuardRailForm path={path} assistant={assistant} />}</Shown>;
};

const GuardRailForm = ({ path, assistant: { worseAllowed } }: { path: string; assistant: Assistant }) => {
  const before = worseAllowed === null ? '' : String(worseAllowed);
  const save = useChange({
    run: (allowed: string) =>
      call<Assistant>('PATCH', path, { body: { worseAllowed: allowed.trim() === '' ? null : Number(allowed) } }),
    invalidates: ['/assistants'],
    done: 'Saved.',
    quiet: true,
  });
  const form = useFields({ worseAllowed: before }, save.error);
  return (
    <form onSubmit={onSubmit(() => save.mutate(form.values.worseAllowed))} noValidate>
      <Stack gap="md" maw={640}>
        <FormProblem problem={save.error} fields={form.names} />
        <TextInput
          label="Cases that may get worse"
          description="Publishing asks again, and names the cases, if the comparison found more, or if the draft was not compared. Leave empty to be never asked."
          inputMode="numeric"
          {...form.text('worseAllowed')}
        />
        <Button
          type="submit"
          className="self-start"
          loading={save.isPending}
          disabled={form.values.worseAllowed === before}
        >
          Save guard rail
        </Button>
      </Stack>
    </form>
  );
};

const RollBack = ({ id, to, live }: { id: string; to: number; live: number }) => {
  const { dialog, ask } = useConfirm();
  const rollBack = useChange({
    run: () =>
      call<AssistantVersion>('POST', at`/assistants/${id}/versions/${String(to)}/roll-back`, { body: { live } }),
    invalidates: ['/assistants/'],
    done: ({ version }) => `Version ${version} is live.`,
  });
  return (
    <>
      <Button
        size="xs"
        variant="default"
        aria-label={`Roll back to version ${to}`}
        loading={rollBack.isPending}
        onClick={() =>
          ask({
            title: `Roll back to version ${to}?`,
            body: `Its entries, settings and sources become live at once, as version ${live + 1}. The draft stays as it is.`,
            action: 'Roll back',
            onConfirm: () => rollBack.mutate(),
          })
        }
      >
        Roll back…
      </Button>
      {dialog}
    </>
  );
};

const VersionRow = ({ id, one, live }: { id: string; one: AssistantVersion; live: number | null | undefined }) => (
  <li className="row row-stack">
    <div className="row-main">
      <div className="row-title break">
        {one.version}
        {one.name !== null && `: ${one.name}`}
      </div>
      {one.note !== null && <div className="break">{one.note}</div>}
      {one.result && (
        <div className="break">
          {one.result.evaluationId === null ? (
            nameOfResult(one.result)
          ) : (
            <Link to={`/assistants/${id}/evaluate/${one.result.evaluationId}`}>{nameOfResult(one.result)}</Link>
          )}
          : {resultWords(one.result)}
        </div>
      )}
      <div className="row-sub">
        {[changeWords(one.changes), one.by.name ?? 'the service'].filter(Boolean).join(' · ')}, <When at={one.at} />
      </div>
    </div>
    {one.version === live && <Status tone="good">Live</Status>}
    {one.canRollBack && live && <RollBack id={id} to={one.version} live={live} />}
  </li>
);

/** The draft of an assistant, and the versions that were live. */
const VersionsPage = ({ id }: { id: string }) => {
  const read = useDraft(id);
  const versions = useRead<Versions>(at`/assistants/${id}/versions`);
  const change = useChange({
    run: (drafts: boolean) => call<Assistant>('PATCH', at`/assistants/${id}`, { body: { drafts } }),
    invalidates: ['/assistants/'],
    done: (_answer, drafts) => (drafts ? 'Drafts are on.' : 'Drafts are off.'),
  });
  return (
    <Page
      title="Versions"
      description="With drafts, changes of knowledge, sources, instructions and the engine are collected, and visitors see all of them at once when you publish."
      actions={
        read.data?.drafts === true &&
        read.data.draft === null && (
          <Button variant="default" loading={change.isPending} onClick={() => change.mutate(false)}>
            Switch drafts off
          </Button>
        )
      }
    >
      <Shown read={read} rows={3}>
        {(state) =>
          state.drafts ? (
            <Section
              title="Draft"
              description={
                state.draft && (
                  <>
                    Begun by {state.draft.begunBy.name ?? 'the service'}, <When at={state.draft.begunAt} />.
                  </>
                )
              }
              flush
              actions={state.draft && <DraftActions id={id} state={state} />}
            >
              {state.draft ? (
                <Changes id={id} draft={state.draft} />
              ) : (
                <Empty icon="pencil" title="No draft">
                  Change knowledge, sources or settings: the draft begins with the first change.
                </Empty>
              )}
            </Section>
          ) : (
            <Section flush>
              <Empty
                icon="layers"
                title="Drafts are off"
                action={
                  <Button loading={change.isPending} onClick={() => change.mutate(true)}>
                    Switch drafts on
                  </Button>
                }
              >
                Each change is live at once.
              </Empty>
            </Section>
          )
        }
      </Shown>
      {read.data?.drafts === true && (
        <Section title="Guard rail">
          <GuardRail id={id} />
        </Section>
      )}
      <Section title="Versions" description="The last 50, newest first" flush>
        <Shown read={versions} rows={2}>
          {({ versions: all }) =>
            all.length === 0 ? (
              <Empty icon="layers" title="No versions yet" />
            ) : (
              <ul className="rows" aria-label="Versions">
                {all.map((one) => (
                  <VersionRow key={one.version} id={id} one={one} live={read.data?.version} />
                ))}
              </ul>
            )
          }
        </Shown>
      </Section>
    </Page>
  );
};

export default VersionsPage;
