import { Page } from '../parts/page.tsx';

const Operators = (_unused: { id?: string; endpointId?: string; deliveryId?: string; me?: unknown }) => (
  <Page title="Operators">…</Page>
);

export default Operators;
