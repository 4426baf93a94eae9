import { useSearchParams } from 'wouter';

/**
 * What is looked for, kept in the address, so that it can be sent to somebody and Back undoes it. `typed` ones change with
 * every key and leave no step behind; another filter begins at the first page again.
 */
export const useAddress = <Name extends string>(names: readonly Name[], typed: readonly Name[] = []) => {
  const [params, setParams] = useSearchParams();
  const of = (name: Name | 'cursor'): string => params.get(name) ?? '';
  const set = (name: Name | 'cursor', value: string | null): void =>
    setParams(
      (now) => {
        const next = new URLSearchParams(now);
        if (name !== 'cursor') next.delete('cursor');
        if (value === null || value === '') next.delete(name);
        else next.set(name, value);
        return next;
      },
      { replace: typed.some((one) => one === name) },
    );
  return {
    of,
    set,
    any: names.some((name) => of(name) !== ''),
    clear: () => setParams({}),
    /** For a field: its value and its event. */
    bound: (name: Name) => ({
      value: of(name),
      onChange: (event: { currentTarget: { value: string } }) => set(name, event.currentTarget.value),
    }),
  };
};
export type Address<Name extends string> = ReturnType<typeof useAddress<Name>>;
