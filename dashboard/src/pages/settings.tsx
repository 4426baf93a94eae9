import { Page } from '../parts/page.tsx';

const Settings = (_unused: { id?: string; endpointId?: string; deliveryId?: string; me?: unknown }) => (
  <Page title="Settings">…</Page>
);

export default Settings;
