package stock

import "context"

// Claim claims goods 1 as the holder of a token does.
func (d Deps) Claim(ctx context.Context, on Store, issuer string, token uint64) error {
	_, err := d.store(on).fence(issuer, token, 1).read(ctx, 1)
	return err
}

// Write overwrites the stock of goods 1 as the holder of a token does.
func (d Deps) Write(ctx context.Context, on Store, issuer string, token uint64) error {
	return d.store(on).fence(issuer, token, 1).write(ctx, 1, 5)
}
