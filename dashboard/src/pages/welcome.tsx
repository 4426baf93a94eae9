import { Button, PasswordInput, Stack, Text, TextInput } from '@mantine/core';
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { useLocation } from 'wouter';
import { call } from '../api.ts';
import { Sheet } from '../frame/sheet.tsx';
import { FormProblem, onSubmit, useFields } from '../parts/form.tsx';
import { Failure, Loading } from '../parts/states.tsx';
import { isProblem } from '../problem.ts';
import { SESSION, useChange } from '../query.ts';
import type { Me, ReadLink } from '../types.ts';

const ChoosePassword = ({ token, link }: { token: string; link: ReadLink }) => {
  const client = useQueryClient();
  const [, go] = useLocation();
  const choose = useChange({
    run: (password: string) => call<Me>('POST', '/links/use', { body: { token, password } }),
    quiet: true,
    after: (me) => {
      client.clear();
      client.setQueryData([SESSION], me);
      go('/', { replace: true });
    },
  });
  const form = useFields({ password: '', again: '' }, choose.error);
  const { password, again } = form.values;
  const differs = again !== '' && again !== password;
  return (
    <form onSubmit={onSubmit(() => password === again && choose.mutate(password))} noValidate>
      <Stack gap="md">
        <FormProblem problem={choose.error} fields={form.names} />
        <TextInput label="Email" value={link.email} readOnly autoComplete="username" />
        <PasswordInput
          label="New password"
          description="At least 12 characters. A few words are easy to remember."
          autoComplete="new-password"
          autoFocus
          {...form.text('password')}
        />
        <PasswordInput
          label="Repeat the password"
          autoComplete="new-password"
          {...form.text('again')}
          {...(differs && { error: 'The passwords do not match' })}
        />
        <Button type="submit" fullWidth loading={choose.isPending} disabled={password === '' || again !== password}>
          {link.invited ? 'Join' : 'Save and sign in'}
        </Button>
      </Stack>
    </form>
  );
};

/**
 * The page of invitations and reset links. The token stands after the `#`, so that no server and no log receives it.
 */
const Welcome = () => {
  const [token] = useState(() => window.location.hash.slice(1));
  const link = useQuery({
    queryKey: ['link', token],
    queryFn: () => call<ReadLink>('POST', '/links/read', { body: { token } }),
    enabled: token !== '',
    retry: false,
    staleTime: Infinity,
  });
  if (token === '' || isProblem(link.error, 404) || isProblem(link.error, 422)) {
    return (
      <Sheet title="This link does not work">
        <Text size="sm">
          It was used before, is older than 7 days, or was replaced by a newer link. Ask an owner for a new one.
        </Text>
      </Sheet>
    );
  }
  if (link.error) {
    return (
      <Sheet title="Welcome">
        <Failure problem={link.error} retry={() => void link.refetch()} />
      </Sheet>
    );
  }
  if (!link.data) return <Loading />;
  return (
    <Sheet
      title={link.data.invited ? 'Welcome to Parley' : 'Choose a new password'}
      lead={link.data.invited ? 'Choose a password to get started.' : 'Your other sessions end when you save it.'}
    >
      <ChoosePassword token={token} link={link.data} />
    </Sheet>
  );
};

export default Welcome;
