import { at, call } from '../../api.ts';
import { FormDialog } from '../../parts/dialog.tsx';
import { useFields } from '../../parts/form.tsx';
import { useChange } from '../../query.ts';
import type { Endpoint } from '../../types.ts';
import { EndpointForm, type EndpointFields, endpointFieldsOf, isComplete, endpointBodyOf } from './endpoint-form.tsx';

/** Edits an endpoint. A new form is created each time the dialog opens, so that it starts with the stored values. */
export const Edit = ({ endpoint, onClose }: { endpoint: Endpoint; onClose: () => void }) => {
  const update = useChange({
    run: (fields: EndpointFields) =>
      call<Endpoint>('PATCH', at`/endpoints/${endpoint.endpointId}`, { body: endpointBodyOf(fields) }),
    invalidates: ['/endpoints/', '/assistants/'],
    done: 'The endpoint is saved.',
    quiet: true,
    after: onClose,
  });
  const form = useFields(endpointFieldsOf(endpoint), update.error);
  return (
    <FormDialog
      title="Change the endpoint"
      size="lg"
      opened
      onClose={onClose}
      onSend={() => update.mutate(form.values)}
      action="Save"
      change={update}
      fields={form.names}
      disabled={!isComplete(form.values)}
    >
      <EndpointForm form={form} />
    </FormDialog>
  );
};
