import { Button, PasswordInput, Stack } from '@mantine/core';
import { call } from '../api.ts';
import { useSignOut } from '../frame/account-menu.tsx';
import { useConfirm } from '../parts/confirm.tsx';
import { FormProblem, onSubmit, useFields } from '../parts/form.tsx';
import { Facts, Page, Section } from '../parts/page.tsx';
import { useChange } from '../query.ts';
import type { Me } from '../types.ts';

const NOTHING = { current: '', next: '' };

const PasswordForm = ({ email }: { email: string }) => {
  const change = useChange({
    run: (body: typeof NOTHING) => call<void>('PUT', '/session/password', { body }),
    done: 'Your password is changed. Your other sessions have ended.',
    quiet: true,
    after: () => form.reset(NOTHING),
  });
  const form = useFields(NOTHING, change.error);
  return (
    <form onSubmit={onSubmit(() => change.mutate(form.values))} noValidate>
      <Stack gap="md" maw={420}>
        <FormProblem problem={change.error} fields={form.names} />
        <input type="hidden" name="username" autoComplete="username" value={email} readOnly />
        <PasswordInput label="Current password" autoComplete="current-password" {...form.text('current')} />
        <PasswordInput
          label="New password"
          description="At least 12 characters."
          autoComplete="new-password"
          {...form.text('next')}
        />
        <Button
          type="submit"
          loading={change.isPending}
          disabled={form.values.current === '' || form.values.next === ''}
          className="self-start"
        >
          Change password
        </Button>
      </Stack>
    </form>
  );
};

const Account = ({ me }: { me: Me }) => {
  const { dialog, ask } = useConfirm();
  const everywhere = useSignOut('/sessions', 'You are signed out everywhere.');
  return (
    <Page title="My account">
      <Section>
        <Facts facts={{ Email: me.email, Role: me.role === 'owner' ? 'Owner' : 'Agent' }} />
      </Section>
      <Section title="Password" description="A new password ends your sessions in all other browsers.">
        <PasswordForm email={me.email} />
      </Section>
      <Section title="Sessions" description="If you lost a device or used a shared computer, sign out everywhere.">
        <Button
          variant="default"
          loading={everywhere.isPending}
          onClick={() =>
            ask({
              title: 'Sign out everywhere?',
              body: 'All your sessions end, including this one.',
              action: 'Sign out everywhere',
              danger: true,
              onConfirm: () => everywhere.mutate(),
            })
          }
        >
          Sign out everywhere
        </Button>
      </Section>
      {dialog}
    </Page>
  );
};

export default Account;
