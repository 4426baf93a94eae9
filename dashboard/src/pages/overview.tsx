import { Page } from '../parts/page.tsx';

const Overview = (_unused: { id?: string; endpointId?: string; deliveryId?: string; me?: unknown }) => (
  <Page title="Overview">…</Page>
);

export default Overview;
