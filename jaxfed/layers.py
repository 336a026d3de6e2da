"""The dense layer with weights stored [out, in]."""

import flax.linen as nn
import jax


class Dense(nn.Module):
    """y = x @ kernel.T + bias on the last axis: x [..., in] -> [..., features].

    The kernel is stored [out, in], so that the products of the forward and of the backward pass both run along the
    long axis. Initial values: LeCun normal with fan-in `in` (LeCun et al. 1998, Efficient BackProp), bias zero.
    """

    features: int
    use_bias: bool = True

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Apply the layer to x [..., in]."""
        init = nn.initializers.lecun_normal(in_axis=1, out_axis=0)
        kernel = self.param("kernel", init, (self.features, x.shape[-1]))
        y = x @ kernel.T
        return y + self.param("bias", nn.initializers.zeros, (self.features,)) if self.use_bias else y
