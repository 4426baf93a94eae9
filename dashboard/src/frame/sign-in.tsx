import { Button, PasswordInput, Stack, TextInput } from '@mantine/core';
import { useQueryClient } from '@tanstack/react-query';
import { call } from '../api.ts';
import { FormProblem, onSubmit, useFields } from '../parts/form.tsx';
import { SESSION, useChange } from '../query.ts';
import type { Me } from '../types.ts';
import { Sheet } from './sheet.tsx';

const ENDED =
  'Your session has ended. Sessions end after 12 hours without use, after 7 days, or when an owner or a new password ends them. Sign in to continue where you were.';

export const SignIn = ({ ended = false }: { ended?: boolean }) => {
  const client = useQueryClient();
  const signIn = useChange({
    run: (body: { email: string; password: string }) => call<Me>('POST', SESSION, { body }),
    quiet: true,
    after: (me) => {
      // Another operator may have been signed in before, so cached data is removed.
      client.removeQueries({ predicate: ({ queryKey: [path] }) => path !== SESSION });
      client.setQueryData([SESSION], me);
    },
  });
  const form = useFields({ email: '', password: '' }, signIn.error);
  return (
    <Sheet title="Sign in" {...(ended && { lead: <span role="status">{ENDED}</span> })}>
      <form onSubmit={onSubmit(() => signIn.mutate(form.values))} noValidate>
        <Stack gap="md">
          <FormProblem problem={signIn.error} fields={form.names} />
          <TextInput label="Email" type="email" autoComplete="username" autoFocus {...form.text('email')} />
          <PasswordInput label="Password" autoComplete="current-password" {...form.text('password')} />
          <Button type="submit" fullWidth loading={signIn.isPending}>
            Sign in
          </Button>
        </Stack>
      </form>
    </Sheet>
  );
};
