import { type SyntheticEvent, useState } from 'react';
import { fieldProblem, remainingProblem } from '../problem.ts';
import { Notice } from './notice.tsx';

type Change<Value> = { value: Value; onChange: (event: { currentTarget: { value: Value } }) => void; error?: string };

/** The fields of a form: their values, and the server's errors for each. */
export const useFields = <Values extends Record<string, unknown>>(initial: Values, problem: unknown = null) => {
  const [values, setValues] = useState(initial);
  const set = <Name extends keyof Values>(name: Name, value: Values[Name]): void =>
    setValues((now) => ({ ...now, [name]: value }));
  type Field = keyof Values & string;
  const errorOf = (name: Field | `${Field}.${string}`) => {
    const error = fieldProblem(problem, name);
    return error === undefined ? {} : { error };
  };
  return {
    values,
    set,
    reset: setValues,
    names: Object.keys(initial),
    /** Props for an `<input>`, whose change handler gets an event. */
    text: <Name extends keyof Values & string>(name: Name) =>
      ({
        name,
        value: values[name],
        onChange: (event) => set(name, event.currentTarget.value as Values[Name]),
        ...errorOf(name),
      }) as { name: Name } & Change<string>,
    /** Props for a component whose change handler gets the value itself. */
    pick: <Name extends keyof Values & string>(name: Name) => ({
      value: values[name],
      onChange: (value: Values[Name]) => set(name, value),
      ...errorOf(name),
    }),
    errorOf,
  };
};

export const FormProblem = ({ problem, fields }: { problem: unknown; fields: readonly string[] }) => {
  const words = remainingProblem(problem, fields);
  return words === undefined ? null : <Notice tone="bad">{words}</Notice>;
};

/** A form's submit handler. It calls `send` and prevents the browser from submitting the form. */
export const onSubmit = (send: () => void) => (event: SyntheticEvent) => {
  event.preventDefault();
  send();
};
