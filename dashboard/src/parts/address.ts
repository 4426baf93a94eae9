import { useSearchParams } from 'wouter';

/**
 * Keeps filters in the page's address, so that a list can be shared and the Back button restores its filters. The
 * filters in `typed` change with every key press, so they add no history entries. Changing a filter returns to the
 * first page.
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
    /** The props of a field: value and change handler. */
    bound: (name: Name) => ({
      value: of(name),
      onChange: (event: { currentTarget: { value: string } }) => set(name, event.currentTarget.value),
    }),
  };
};
export type Address<Name extends string> = ReturnType<typeof useAddress<Name>>;
