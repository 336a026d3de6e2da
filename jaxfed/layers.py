import flax.linen as nn


class Dense(nn.Module):
    features: int
    use_bias: bool = True
    @nn.compact
    def __call__(self, x):
        k = self.param("kernel", nn.initializers.lecun_normal(in_axis=1, out_axis=0), (self.features, x.shape[-1]))
        b = self.param("bias", nn.initializers.zeros, (self.features,))
        return x @ k.T + b
