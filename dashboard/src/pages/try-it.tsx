import { Page } from '../parts/page.tsx';

const TryIt = (_unused: { id?: string; endpointId?: string; deliveryId?: string; me?: unknown }) => (
  <Page title="TryIt">…</Page>
);

export default TryIt;
